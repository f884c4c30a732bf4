"""Prompts of a burst: rows that decode pause for them, or get one token beside a whole pack."""

import pytest

from services.target.core.plan import Plan
from tests.unit.target.scheduling.scheduling import Rig, spec


def test_a_round_without_rows_has_more_prompt_tokens() -> None:
    rig = Rig(pack_tokens=40, burst_rows=1)
    rig.scheduler.add(spec(prompt=50, tokens=30), None, 0.0)
    assert [rig.round()[0].prefill_tokens for _ in range(2)] == [40, 10]
    rig.scheduler.add(spec(prompt=50, tokens=1, seed=2), None, 0.0)
    assert [rig.round()[0].prefill_tokens for _ in range(4)] == [16, 16, 16, 2]


@pytest.mark.parametrize(("mixed_tokens", "prompts"), [(0, [40, 40, 16, 4]), (32, [32, 32, 16, 16])])
def test_rows_that_do_not_pause_in_a_burst_get_one_token_beside_a_pack(mixed_tokens: int, prompts: list[int]) -> None:
    """What drafts would take, prompts wait for. Rows in one forward with them take room of the pack."""
    rig = Rig(pack_tokens=40, mixed_tokens=mixed_tokens, pause_s=0.0)
    rig.scheduler.add(spec(prompt=4, tokens=30), None, 0.0)
    rig.round()
    for seed in (2, 3):
        rig.scheduler.add(spec(prompt=50, tokens=1, seed=seed), None, rig.now)
    plans = [rig.round()[0] for _ in range(4)]
    assert [(plan.rows, plan.width) for plan in plans] == [((0,), 4), ((0,), 1), ((0,), 4), ((0,), 4)]
    assert [plan.prefill_tokens for plan in plans] == prompts


@pytest.mark.parametrize(("prompts", "decoding"), [(1, 8), (2, 0)])
def test_rows_pause_for_two_prompts(prompts: int, decoding: int) -> None:
    """Of more than 64 rows for three, and so on."""
    rig = Rig(slots=16, buckets=(1, 2, 4, 8, 16), blocks=256, chunk_tokens=64)
    for seed in range(8):
        rig.scheduler.add(spec(prompt=4, tokens=30, seed=seed + 1), None, 0.0)
    rig.round()
    for seed in range(prompts):
        rig.scheduler.add(spec(prompt=4, tokens=30, seed=seed + 20), None, rig.now)
    rig.now -= 1.0
    assert len(rig.round()[0].rows) == decoding


class Timed:
    """Rounds of a scheduler whose packs have 16 tokens; each takes as long as is said.

    Bursts that met nobody pause for 0.04 s, an eighth of it otherwise.
    """

    def __init__(self) -> None:
        self.rig = Rig(slots=8, buckets=(1, 2, 4, 8), pack_tokens=16, pause_s=0.005)
        self.now = 100.0

    def add(self, prompts: int, length: int) -> None:
        for _ in range(prompts):
            seed = len(self.rig.scheduler.live()) + 1
            self.rig.scheduler.add(spec(prompt=length, tokens=30, seed=seed), None, self.now)

    def round(self, took_s: float) -> Plan:
        plan = self.rig.scheduler.plan(self.now)
        self.now += took_s
        self.rig.scheduler.commit(plan, self.rig.device.execute(plan, 0), self.now)
        return plan


@pytest.mark.parametrize(("pack_s", "decoding"), [(0.05, [0, 0, 1, 1]), (0.015, [0, 0, 1, 0])])
def test_rows_lie_beside_packs_that_take_longer_than_a_pause(pack_s: float, decoding: list[int]) -> None:
    """What rows may wait counts to the end of the pack behind the next. The first one's time is not known."""
    timed = Timed()
    timed.add(5, 16)
    plans = [timed.round(pack_s) for _ in decoding]
    assert [int(bool(plan.rows)) for plan in plans] == decoding
    assert all(plan.chunks for plan in plans)


@pytest.mark.parametrize(("length", "decoding"), [(3, False), (6, True)])
def test_rows_pause_for_a_pack_that_is_short_by_what_a_token_took(length: int, decoding: bool) -> None:
    """How long whole packs took before does not make short ones long."""
    timed = Timed()
    timed.add(1, 32)
    assert [timed.round(0.06).prompts_alone for _ in range(2)] == [True, True]
    assert timed.round(0.001).rows
    timed.add(2, length)
    assert bool(timed.round(0.001).rows) == decoding


def test_a_short_pack_does_not_make_whole_ones_long() -> None:
    """What it takes whatever it holds would count for each of its few tokens."""
    timed = Timed()
    timed.add(1, 18)
    assert [timed.round(0.05).prefill_tokens for _ in range(2)] == [16, 2]
    assert timed.round(0.001).rows
    timed.add(2, 6)
    assert timed.round(0.001).prompts_alone


def test_a_pack_whose_end_was_seen_late_makes_no_other_one_short() -> None:
    """The host sees the third end 29 ms late, and the fourth on time."""
    timed = Timed()
    timed.add(1, 60)
    assert [timed.round(took_s).prompts_alone for took_s in (0.03, 0.03, 0.059, 0.001)] == [True] * 4
    assert timed.round(0.001).rows
    timed.add(2, 16)
    assert timed.round(0.001).rows


@pytest.mark.parametrize(("decoded_s", "pauses"), [(0.05, True), (0.2, False)])
def test_rows_that_decoded_before_a_burst_wait_for_an_eighth_of_what_its_own_do(decoded_s: float, pauses: bool) -> None:
    """What begins within 0.1 s is of one burst: clients send its requests one by one. Packs take 10 ms."""
    timed = Timed()
    timed.add(1, 32)
    assert [timed.round(0.01).prompts_alone for _ in range(2)] == [True, True]
    for _ in range(10):
        assert timed.round(decoded_s / 10).rows
    timed.add(2, 16)
    assert timed.round(0.01).prompts_alone == pauses
