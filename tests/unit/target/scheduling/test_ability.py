"""Rows go to the requests that are likely to accept them, by what was learned of each (`Abilities`)."""

import random

import pytest

from services.target.core.width import Ragged, evenly
from services.target.scheduling.width.ability import Abilities

ROUNDS = 60
WIDTHS = (1, 4, 8, 16, Ragged(16, 32, 2))
ABLE, WEAK = (0, 1), (2, 3)


def taught(chances: dict[int, float], seed: int = 65) -> Abilities:
    """Requests whose drafts are each accepted with such a chance, served in rounds by what was learned so far."""
    acceptance, dice = Abilities(WIDTHS), random.Random(seed)
    for uid in chances:
        acceptance.join(uid, None, None)
    for _ in range(ROUNDS):
        for uid, take in zip(chances, acceptance.takes(Ragged(16, 32, 2), list(chances)), strict=True):
            accepted = 0
            while accepted < take - 1 and dice.random() < chances[uid]:
                accepted += 1
            acceptance.observe(uid, take - 1, accepted, False)
    return acceptance


def test_a_request_that_accepts_much_gets_many_rows_and_each_a_piece() -> None:
    acceptance = taught({0: 0.95, 1: 0.95, 2: 0.3, 3: 0.3})
    takes = acceptance.takes(Ragged(16, 32, 2), [0, 1, 2, 3])
    assert min(takes[uid] for uid in ABLE) >= 8
    assert max(takes[uid] for uid in WEAK) <= 4
    assert min(takes) >= 2 and sum(takes) <= 32 and all(take % 2 == 0 for take in takes)


def test_what_a_weak_request_did_not_try_is_not_thought_to_be_what_able_ones_accept() -> None:
    acceptance = taught({0: 0.95, 1: 0.95, 2: 0.3, 3: 0.3})
    weak, able = (acceptance._chances(acceptance._rows[uid], 8) for uid in (2, 0))
    assert weak[0] < 0.5
    assert all(one < other - 0.15 for one, other in zip(weak, able, strict=True))


def test_requests_that_are_alike_get_rows_alike() -> None:
    takes = taught(dict.fromkeys(range(4), 0.7)).takes(Ragged(16, 32, 2), [0, 1, 2, 3])
    assert max(takes) - min(takes) <= 4


def test_a_round_is_thought_to_commit_what_it_does() -> None:
    """Of chains of one length too: what was learned of four positions says of them what was accepted."""
    promised = taught(dict.fromkeys(range(4), 0.7)).tokens(1.0)
    assert promised[1] == pytest.approx(4 * (1 + 0.7 + 0.49 + 0.343), rel=0.1)
    assert promised[1] < promised[WIDTHS.index(Ragged(16, 32, 2))] <= promised[3]


def test_more_rows_never_promise_less() -> None:
    acceptance = taught({0: 0.9, 1: 0.7, 2: 0.5, 3: 0.3})
    totals = [acceptance._of(2).tokens(rows) for rows in range(8, 80, 2)]
    assert totals == sorted(totals)


def test_a_request_takes_no_rows_that_it_cannot_use() -> None:
    acceptance = Abilities(WIDTHS)
    acceptance.join(0, 0, None)
    acceptance.join(1, 3, None)
    acceptance.join(2, None, 2)
    acceptance.join(3, None, None)
    assert acceptance.takes(Ragged(16, 32, 2), [0, 1, 2, 3]) == (2, 4, 2, 16)


def test_requests_that_left_get_nothing() -> None:
    acceptance = taught({0: 0.9, 1: 0.7, 2: 0.5, 3: 0.3})
    acceptance.leave(0)
    assert len(acceptance.takes(Ragged(16, 32, 2), [1, 2, 3])) == 3
    for uid in (1, 2, 3):
        acceptance.leave(uid)
    assert acceptance.rows == 0


def test_a_round_fits_requests_that_have_a_piece_each_and_not_all_the_most() -> None:
    width = Ragged(16, 32, 2)
    assert [width.fits(rows) for rows in (2, 3, 15, 16)] == [False, True, True, False]
    assert width == Ragged(16, 32, 2) != Ragged(16, 32, 4)
    assert width != 16 and hash(width) == hash(Ragged(16, 32, 2))
    assert evenly(width, 5) == (8, 6, 6, 6, 6)
