"""What a round with drafts is held against: plain rounds as they were served, beside the same load, or nothing."""

from collections.abc import Callable

import pytest

from services.target.scheduling.width.policy import SAMPLED, FixedWidth, WidthPolicy
from services.target.scheduling.width.width import adaptive_policy
from tests.unit.target.scheduling.scheduling import Rig, spec

BUCKETS = (1, 2, 4)
IDLE = {1: 100.0, 4: 250.0}
BUSY = {width: 6.0 * micros for width, micros in IDLE.items()}
"""The same rounds beside others on the processor."""


def fixed() -> FixedWidth:
    return FixedWidth(4, SAMPLED)


def adaptive() -> WidthPolicy:
    return adaptive_policy((1, 4), BUCKETS, {(bucket, width): IDLE[width] for bucket in BUCKETS for width in IDLE})


POLICIES = pytest.mark.parametrize("make", [fixed, adaptive])
Make = Callable[[], WidthPolicy]


def decode(policy: WidthPolicy, matched: int) -> tuple[list[int], float, float]:
    """Widths of a request's rounds where others are busy, and what counters say of drafts and of plain."""
    rig = Rig(policy=policy, context_limit=1024, blocks=400)
    rig.scheduler.add(spec(prompt=4, tokens=900), None, 0.0)
    widths, spent, plain = [], 0.0, 0.0
    while rig.scheduler.live():
        plan = rig.scheduler.plan(rig.now)
        commit = rig.scheduler.commit(plan, rig.device.execute(plan, matched), rig.now, BUSY[plan.width])
        widths += [plan.width] if plan.rows else []
        spent, plain = spent + commit.round_us, plain + commit.plain_us
    return widths, spent, plain


@POLICIES
def test_what_warm_up_measured_judges_no_round(make: Make) -> None:
    """It was measured alone: rounds beside others would look six times too dear."""
    policy = make()
    assert policy.plain_micros(1) == 0.0
    rig = Rig(policy=policy)
    rig.scheduler.add(spec(prompt=4, tokens=30), None, 0.0)
    rig.round()
    plan = rig.scheduler.plan(rig.now)
    commit = rig.scheduler.commit(plan, rig.device.execute(plan, 3), rig.now, BUSY[4])
    assert plan.width == 4 and (commit.round_us, commit.plain_us) == (0.0, 0.0)


@POLICIES
@pytest.mark.parametrize(("matched", "ratio"), [(0, 0.4), (1, 0.8), (3, 1.6)])
def test_a_load_beside_others_has_the_speed_up_that_it_has_alone(make: Make, matched: int, ratio: float) -> None:
    """Rounds of both kinds take as many times longer, so their ratio stays."""
    widths, spent, plain = decode(make(), matched)
    assert {1, 4} <= set(widths) and spent > 0.0
    assert plain / spent == pytest.approx(ratio, rel=0.02)


def test_two_of_many_rounds_of_a_fixed_width_are_plain() -> None:
    """The second of them follows its like; one alone would have the marks of the round before."""
    policy = fixed()
    policy.join(1, None)
    widths = [policy.choose(1, 1) for _ in range(2 * SAMPLED)]
    assert [at + 1 for at, width in enumerate(widths) if width == 1] == [64, 65, SAMPLED + 64, SAMPLED + 65]
    for width, micros in ((4, 900.0), (1, 500.0), (1, 300.0), (4, 900.0), (1, 500.0)):
        policy.landed(1, width, 1, micros)
    assert policy.plain_micros(1) == 300.0 and policy.plain_micros(2) == 0.0
    for micros in (200.0, 9_000.0):
        policy.landed(1, 1, 1, micros)
    assert policy.plain_micros(1) == 300.0


def test_nothing_is_sampled_where_nobody_asked() -> None:
    policy = FixedWidth(4)
    policy.join(1, None)
    assert {policy.choose(1, 1) for _ in range(2 * SAMPLED)} == {4}


def test_a_round_that_prefills_is_held_against_nothing() -> None:
    """Its time is not that of its rows alone."""
    policy = fixed()
    rig = Rig(policy=policy)
    for _ in range(2):
        policy.landed(1, 1, 1, 100.0)
    rig.scheduler.add(spec(prompt=4, tokens=30), None, 0.0)
    plan = rig.scheduler.plan(rig.now)
    commit = rig.scheduler.commit(plan, rig.device.execute(plan, 2), rig.now, 250.0)
    assert (commit.round_us, commit.plain_us) == (0.0, 0.0)
