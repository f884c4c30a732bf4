"""What a round with drafts is held against: plain rounds as they were served, beside the same load, or nothing."""

import math
import random
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


LOADS = pytest.mark.parametrize(("matched", "ratio"), [(0, 0.4), (1, 0.8), (3, 1.6)])


@LOADS
def test_a_load_beside_others_has_the_speed_up_that_it_has_alone(matched: int, ratio: float) -> None:
    """Rounds of both kinds take as many times longer, so their ratio stays."""
    widths, spent, plain = decode(fixed(), matched)
    assert {1, 4} <= set(widths) and spent > 0.0
    assert plain / spent == pytest.approx(ratio, rel=0.02)


@LOADS
def test_rounds_that_a_policy_tries_are_no_loss(matched: int, ratio: float) -> None:
    """Where drafts lose it goes plain after the first, and the few that it then tries are the price of knowing."""
    widths, spent, plain = decode(adaptive(), matched)
    assert {1, 4} <= set(widths)
    if ratio > 1.0:
        assert plain / spent == pytest.approx(ratio, rel=0.02)
    else:
        assert spent <= 2 * BUSY[4] and widths.count(4) > 2


MADE = {0.9: 2.42, 0.97: 2.24, 1.03: 2.11, 1.1: 1.98, 1.3: 1.67}
"""Gains, and by how many times a round of four takes longer then: 2.176 tokens by 0.6 for each draft."""


def scattered(policy: WidthPolicy, longer: float, seed: int) -> tuple[float, float]:
    """What counters say after many rounds whose times scatter by a fifth, and of which some stand still."""
    chance, spent, plain = random.Random(seed), 0.0, 0.0
    policy.join(1, None)
    for _ in range(6_000):
        width = policy.choose(1, 1)
        accepted = next((at for at in range(width - 1) if chance.random() >= 0.6), width - 1)
        micros = 1000.0 * (longer if width > 1 else 1.0) * math.exp(chance.gauss(-0.02, 0.2))
        micros += 20_000.0 * (chance.random() < 0.002)
        if width > 1:
            policy.observe(1, width - 1, accepted, False)
        policy.landed(1, width, accepted + 1, micros)
        if width > 1 and (one := policy.plain_micros(1)):
            spent, plain = spent + micros, plain + one * (accepted + 1)
    return spent, plain


@POLICIES
@pytest.mark.parametrize("gain", MADE)
def test_rounds_that_scatter_tell_the_gain_that_there_is(make: Make, gain: float) -> None:
    """By the median of plain ones a gain of 2 % was a loss; by the costs that choose, a loss of 3 % a gain of half."""
    runs = [scattered(make(), MADE[gain], seed) for seed in range(3)]
    spent, plain = (sum(column) for column in zip(*runs, strict=True))
    if spent > 3 * 6_000 * 1000.0 * 0.1:
        assert plain / spent == pytest.approx(gain, rel=0.04)
    else:
        assert gain < 1.0, "it goes plain"


def test_two_of_many_rounds_of_a_fixed_width_are_plain() -> None:
    """The second of them follows its like; one alone would have the marks of the round before."""
    policy = fixed()
    policy.join(1, None)
    widths = [policy.choose(1, 1) for _ in range(2 * SAMPLED)]
    assert [at + 1 for at, width in enumerate(widths) if width == 1] == [64, 65, SAMPLED + 64, SAMPLED + 65]
    for width, micros in ((4, 900.0), (1, 500.0), (1, 300.0), (4, 900.0), (1, 500.0), (4, 900.0)):
        policy.landed(1, width, 1, micros)
    assert policy.plain_micros(1) == 300.0 and policy.plain_micros(2) == 0.0
    for width, micros in ((1, 500.0), (1, 200.0), (4, 900.0)):
        policy.landed(1, width, 1, micros)
    assert policy.plain_micros(1) == 250.0


def test_a_round_that_stood_still_counts_on_neither_side() -> None:
    """A plain one speaks for many: its nine seconds would make drafts look good for an hour."""
    policy = fixed()
    for width, micros in ((4, 900.0), (1, 400.0), (1, 300.0), (1, 9_000.0), (4, 900.0)):
        policy.landed(1, width, 1, micros)
    assert policy.plain_micros(1) == 300.0
    policy.landed(1, 4, 1, 9_000.0)
    assert policy.plain_micros(1) == 0.0
    policy.landed(1, 4, 1, 900.0)
    assert policy.plain_micros(1) == 300.0
    for _ in range(60):
        policy.landed(1, 4, 1, 9_000.0)
    assert policy.plain_micros(1) == 300.0, "what lasts is what rounds take"


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
