"""Rounds without all of the rows: those that are left out, and when that gains."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import pytest

from services.target.core.request import Request
from services.target.scheduling.turns import Turns
from services.target.scheduling.width.policy import FixedWidth
from services.target.scheduling.width.width import AdaptiveWidth, adaptive_policy
from tests.unit.target.scheduling.scheduling import Rig, spec


class Full(FixedWidth):
    """Leaves rows out wherever a smaller bucket can be full."""

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        return max(bucket for bucket in buckets if bucket <= rows)


class Decoding:
    """Requests that decode, each in a slot of its own, and their turns."""

    def __init__(self, slots: Iterable[int]) -> None:
        self.turns = Turns()
        self.rows: dict[int, Request] = {}
        for slot in slots:
            self.join(slot)

    def join(self, slot: int) -> None:
        asked = spec(prompt=2, tokens=99)
        self.rows[slot] = Request(slot + 100, asked, None, 0.0, 99, frozenset(), (0.0, slot), [1, 2], slot=slot)
        self.turns.join(self.rows[slot])

    def round(self, count: int, tokens: Mapping[int, int] | None = None) -> tuple[int, ...]:
        """A round of so many rows, which get the tokens that are said, or one each."""
        taken = self.turns.take(sorted(self.rows), count)
        for slot in taken:
            self.rows[slot].tokens += [0] * (tokens or {}).get(slot, 1)
        return taken


def test_no_row_is_left_out_twice_in_a_row() -> None:
    own = Decoding((1, 2, 5, 7, 8, 9, 11))
    rounds = [own.round(4) for _ in range(7)]
    assert all(round_ == tuple(sorted(set(round_))) for round_ in rounds)
    assert Counter(slot for round_ in rounds for slot in round_) == dict.fromkeys(own.rows, 4)
    assert all({*before, *after} == {*own.rows} for before, after in pairwise(rounds))


def test_rows_that_got_fewest_tokens_go_first() -> None:
    own = Decoding(range(4))
    own.round(4, {0: 9, 1: 2, 2: 5, 3: 7})
    assert own.round(3) == (1, 2, 3)
    assert own.round(3) == (0, 1, 2), "the one that was left out, and those behind"
    assert own.round(3) == (1, 2, 3)


def test_turns_bring_rows_together_that_came_apart() -> None:
    own = Decoding(range(6))
    own.round(6, {slot: 10 * slot for slot in range(6)})
    for _ in range(200):
        own.round(4)
    counts = [own.rows[slot].generated for slot in range(6)]
    assert max(counts) - min(counts) <= 2


def test_a_request_that_joins_starts_at_the_lowest_count() -> None:
    """It goes before all others no longer than the slowest of them does."""
    own = Decoding(range(3))
    own.round(3, {0: 50, 1: 40, 2: 45})
    own.join(3)
    assert [own.round(3) for _ in range(2)] == [(1, 2, 3), (0, 1, 3)]
    own.round(4, {0: 1, 1: 1, 2: 1, 3: 6})
    assert own.round(3) == (1, 2, 3), "it has one more than the slowest"
    own.turns.leave(own.rows.pop(1).uid)
    assert own.round(2) == (0, 2)


def known(micros: dict[int, tuple[float, float]], rows: int) -> AdaptiveWidth:
    """A policy of plain rounds and drafts of three, by their costs, while so many requests decode."""
    costs = {(bucket, width): cost for bucket, both in micros.items() for width, cost in zip((1, 4), both, strict=True)}
    policy = adaptive_policy((1, 4), tuple(micros), costs)
    for uid in range(rows):
        policy.join(uid, None)
    return policy


@pytest.mark.parametrize(
    ("rows", "larger", "fitting"),
    [(5, 150.0, 4), (5, 120.0, 5), (7, 150.0, 7), (7, 180.0, 4), (8, 300.0, 8), (4, 300.0, 4)],
)
def test_rows_are_left_out_where_a_smaller_round_brings_more_tokens_a_second(
    rows: int, larger: float, fitting: int
) -> None:
    """A round of four takes 100 us. What a row brings does not depend on the others."""
    policy = known({2: (60.0, 90.0), 4: (70.0, 100.0), 8: (80.0, larger)}, rows)
    assert policy.fitting((2, 4, 8), rows) == fitting


def test_one_bucket_has_all_rows() -> None:
    assert known({8: (80.0, 100.0)}, 3).fitting((8,), 3) == 3


def test_a_full_round_expects_the_tokens_of_its_own_rows() -> None:
    """A probe is judged by them."""
    policy = known({4: (50.0, 100.0), 8: (50.0, 100.0)}, 8)
    assert policy.rates(4) == pytest.approx([rate / 2 for rate in policy.rates(8)])


def test_all_requests_end_where_rows_take_turns() -> None:
    """No row waits for more than a round, and every token comes."""
    rig = Rig(blocks=128, slots=8, buckets=(1, 2, 4, 8))
    rig.scheduler._policy = Full(4)
    for seed in range(7):
        rig.scheduler.add(spec(prompt=2, tokens=25, seed=seed + 1), None, 0.0)
    got, waited = Counter[int](), Counter[int]()
    while rig.scheduler.live():
        live = {request.uid for request in rig.scheduler.live() if request.first_token is not None}
        plan, progress = rig.round()
        served = {news.request.uid for news in progress}
        got.update({news.request.uid: len(news.tokens) for news in progress})
        waited = Counter({uid: waited[uid] + 1 for uid in live - served})
        assert not waited or max(waited.values()) == 1
        assert not plan.rows or len(plan.rows) in rig.settings.buckets
    assert sorted(got.values()) == [25] * 7
