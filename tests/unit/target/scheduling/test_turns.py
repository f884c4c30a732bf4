"""Rounds without all of the rows: those that are left out, and when that gains."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from services.target.scheduling.turns import Turns
from services.target.scheduling.width.policy import FixedWidth
from services.target.scheduling.width.width import AdaptiveWidth, adaptive_policy
from tests.unit.target.scheduling.scheduling import Rig, spec


class Full(FixedWidth):
    """Leaves rows out wherever a smaller bucket can be full."""

    def fitting(self, buckets: Sequence[int], rows: int) -> int:
        return max(bucket for bucket in buckets if bucket <= rows)


def test_each_row_is_left_out_as_often_as_any_other() -> None:
    turns, rows = Turns(), (1, 2, 5, 7, 8, 9, 11)
    rounds = [turns.take(rows, 4) for _ in range(7)]
    assert all(round_ == tuple(sorted(set(round_))) for round_ in rounds)
    assert Counter(slot for round_ in rounds for slot in round_) == dict.fromkeys(rows, 4)
    assert all({*before, *after} == {*rows} for before, after in pairwise(rounds))


def test_rows_that_end_or_begin_keep_the_order_of_turns() -> None:
    turns = Turns()
    assert turns.take((0, 1, 2, 3, 4), 3) == (0, 1, 2)
    assert turns.take((0, 1, 4, 6), 2) == (4, 6)
    assert turns.take((0, 1, 4), 2) == (0, 1)
    assert turns.take((0, 1, 9), 2) == (0, 9)


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
