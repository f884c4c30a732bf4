"""Adaptive width: close to the best fixed width on every profile, never much worse than plain, and quick to turn."""

import random
from collections.abc import Mapping, Sequence
from statistics import median

import pytest

from services.target.scheduling.width.acceptance import Acceptance
from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from services.target.scheduling.width.width import AdaptiveWidth, adaptive_policy
from tests.unit.target.scheduling.acceptance_profiles import (
    BUCKETS,
    P13,
    P30,
    P65,
    WIDTHS,
    accepted_drafts,
    conditional,
    micros_table,
    round_micros,
    tokens_per_second,
)


def policy() -> AdaptiveWidth:
    """A fresh policy over the simulated costs."""
    return adaptive_policy(WIDTHS, BUCKETS, micros_table())


def knowing(micros: Mapping[int, float]) -> AdaptiveWidth:
    """A fresh policy for one request at a time that knows what each width costs."""
    return adaptive_policy(tuple(micros), (1,), {(1, width): cost for width, cost in micros.items()})


def spent(
    chosen: WidthPolicy,
    requests: Sequence[Sequence[float]],
    micros: Mapping[int, float],
    source: random.Random,
    first: int = 0,
) -> float:
    """Microseconds for requests of 127 tokens, one after another, each with its own chances."""
    total = 0.0
    for uid, chances in enumerate(requests, first):
        chosen.join(uid, None)
        left = 127
        while left > 0:
            width = chosen.choose(1, 1)
            accepted = min(accepted_drafts(source, chances, width - 1), left - 1)
            left -= accepted + 1
            took = micros[width] * source.uniform(0.9, 1.1)
            chosen.observe(uid, width - 1, accepted, left == 0)
            chosen.landed(1, width, accepted + 1, took)
            total += took
        chosen.leave(uid)
    return total


@pytest.mark.parametrize(("name", "rates"), [("P65", P65), ("P30", P30), ("P13", P13)])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_adaptive_reaches_the_best_fixed_width(name: str, rates: tuple[float, ...], rows: int) -> None:
    """The median over seeds is at least 0.97 of the best of plain and all fixed widths."""
    rounds = max(300, 4000 // rows)
    shares = []
    for seed in (1, 2, 3):
        fixed = max(tokens_per_second(FixedWidth(width), rows, rates, rounds, seed) for width in WIDTHS)
        shares.append(tokens_per_second(policy(), rows, rates, rounds, seed) / fixed)
    print(f"{name} rows={rows} adaptive / best fixed = {shares}")
    assert median(shares) >= 0.97


@pytest.mark.parametrize("rates", [P65, P13])
def test_costs_that_warm_up_did_not_know_are_learnt(rates: tuple[float, ...]) -> None:
    """Warm-up timed verify alone, without drafts and host; the policy still comes close to the best fixed width."""
    blind = {(bucket, width): 0.5 * round_micros(bucket, 1) + bucket * width for bucket in BUCKETS for width in WIDTHS}
    fixed = max(tokens_per_second(FixedWidth(width), 32, rates, 600, 1) for width in WIDTHS)
    assert tokens_per_second(adaptive_policy(WIDTHS, BUCKETS, blind), 32, rates, 600, 1) >= 0.96 * fixed


def test_requests_of_two_kinds_in_turn_come_close_to_the_best_width_of_each() -> None:
    """What a greedy stream accepts says little about a sampled one; costs are those of two CPU cores, served."""
    micros = {1: 3000.0, 4: 5400.0, 8: 6300.0}
    kinds = ((0.85,) * 7, (0.62, 0.5, 0.42, 0.38, 0.33, 0.3, 0.28))
    shares = []
    for seed in (1, 2, 3):
        best = sum(
            min(spent(FixedWidth(width), [kind] * 60, micros, random.Random(seed)) for width in micros)
            for kind in kinds
        )
        shares.append(best / spent(knowing(micros), kinds * 60, micros, random.Random(seed)))
    print(f"best widths / adaptive = {shares}")
    assert median(shares) >= 0.95


def test_plain_loads_lose_little_to_probes() -> None:
    """Where drafts never match, probing costs at most 3 % of plain."""
    none = (0.0,) * 15
    plain = tokens_per_second(FixedWidth(1), 16, none, 300, 3)
    assert tokens_per_second(policy(), 16, none, 3000, 3) >= 0.97 * plain


def test_a_narrower_width_that_is_nearly_as_good_is_looked_at_rarely() -> None:
    """It would show nothing that the wider rounds do not, but for its cost."""
    chosen, source = knowing({1: 2572.0, 4: 3134.0, 8: 3150.0, 16: 3240.0}), random.Random(7)
    chosen.join(1, None)
    widths = []
    for _ in range(2000):
        width = chosen.choose(1, 1)
        accepted = accepted_drafts(source, (0.8,) * 15, width - 1)
        chosen.observe(1, width - 1, accepted, False)
        chosen.landed(1, width, accepted + 1, chosen.costs.cost(1, width))
        widths.append(width)
    _, _, eight, sixteen = chosen.rates(1)
    assert 0.85 < eight / sixteen < 0.97
    assert widths[1000:].count(16) >= 980


def test_good_drafts_are_found_again_after_bad_times() -> None:
    """A policy that has settled on plain turns to wide rounds when drafts become good."""
    chosen, source = policy(), random.Random(5)
    chosen.join(1, None)
    widths = []
    for number in range(3000):
        chances = conditional(P13) if number < 1000 else conditional(P65)
        width = chosen.choose(1, 1)
        accepted = accepted_drafts(source, chances, width - 1) if number >= 1000 else 0
        chosen.observe(1, width - 1, accepted, False)
        chosen.landed(1, width, accepted + 1, round_micros(1, width))
        widths.append(width)
    assert widths[900:1000].count(1) >= 90
    assert widths[2900:].count(16) + widths[2900:].count(8) >= 90


def test_positions_that_nobody_reached_are_worth_what_a_request_does_before_them() -> None:
    """Requests that accept no seventh draft leave little to learn behind it; another kind must not wait for that."""
    micros = {1: 2572.0, 4: 3134.0, 8: 3150.0, 16: 3240.0}
    six, others = (1.0, 1.0, 1.0, 1.0, 1.0, 0.5, *[0.0] * 9), conditional(P65)
    widest = spent(FixedWidth(16), [others] * 400, micros, random.Random(99)) / 50
    shares = []
    for seed in range(25):
        source, adaptive = random.Random(seed), knowing(micros)
        spent(adaptive, [conditional(six)] * 40, micros, source)
        shares.append(widest / spent(adaptive, [others] * 8, micros, source, first=40))
    print(f"adaptive / widest after the change = {[round(share, 3) for share in shares]}")
    assert median(shares) >= 0.97


def test_promising_widths_are_timed_before_one_is_chosen() -> None:
    """What warm-up did not know, the first live rounds tell; the policy then avoids what turned out dear."""
    chosen = policy()
    chosen.join(1, None)
    widths = []
    for _ in range(60):
        width = chosen.choose(1, 1)
        widths.append(width)
        chosen.observe(1, width - 1, (width - 1) // 2, False)
        chosen.landed(1, width, 1 + (width - 1) // 2, 1000.0 if width == 1 else 50_000.0)
    assert len(set(widths[:12])) >= 3 and widths[40:].count(1) >= 18


def test_plain_rounds_that_promise_little_are_timed_once() -> None:
    """The first round of a kind tells no cost, so there are two."""
    chosen, source, widths = policy(), random.Random(7), []
    for uid in range(64):
        chosen.join(uid, None)
    for _ in range(120):
        widths.append(width := chosen.choose(64, 64))
        for uid in range(64):
            chosen.observe(uid, width - 1, accepted_drafts(source, conditional(P65), width - 1), False)
        chosen.landed(64, width, 64, round_micros(64, width))
    rates = chosen.rates(64)
    assert rates[0] < 0.6 * max(rates) and widths.count(1) == 2 and chosen.costs.live_rounds(64, 1) == 1


def test_rows_without_drafts_make_rounds_plain() -> None:
    """With speculation off for all, a round is plain; with one that wants drafts it may be wide again."""
    for chosen in (policy(), FixedWidth(8)):
        chosen.join(1, 0)
        chosen.join(2, 0)
        for _ in range(100):
            assert chosen.choose(2, 2) == 1
            chosen.landed(2, 1, 2, round_micros(2, 1))
        chosen.join(3, None)
        chosen.leave(1)
        widths = []
        for _ in range(8):
            widths.append(chosen.choose(2, 2))
            chosen.landed(2, widths[-1], 2, round_micros(2, widths[-1]))
        assert max(widths) > 1


def test_a_cap_limits_what_width_promises() -> None:
    """Nothing beyond a request's longest draft is expected of it."""
    acceptance = Acceptance(WIDTHS)
    acceptance.join(1, 3)
    plain, four, eight, sixteen = acceptance.expected()
    assert plain == 1.0 and four > 2.0 and four == eight == sixteen


def test_widths_beyond_every_cap_are_never_run() -> None:
    """Neither as a choice nor as a trial or a probe."""
    chosen = policy()
    chosen.join(1, 3)
    for _ in range(200):
        width = chosen.choose(1, 1)
        assert width <= 4
        chosen.observe(1, width - 1, width - 1, False)
        chosen.landed(1, width, width, round_micros(1, width))


def test_positions_not_drafted_are_not_observed() -> None:
    """Short drafts that all match do not make later positions look bad, nor does an end in mid-span."""
    acceptance = Acceptance(WIDTHS)
    acceptance.join(1, None)
    before = acceptance.expected()[3]
    for _ in range(50):
        acceptance.observe(1, 3, 3, False)
        acceptance.observe(1, 3, 1, True)
    assert acceptance.expected()[3] > before


def test_a_miss_counts_at_its_position_only() -> None:
    """After many rounds that accept exactly two drafts, the third is hopeless and the first two are sure."""
    acceptance = Acceptance(WIDTHS)
    acceptance.join(1, None)
    for _ in range(400):
        acceptance.observe(1, 15, 2, False)
        acceptance.expected()
    _, four, eight, sixteen = acceptance.expected()
    assert 2.9 < four < 3.1 and sixteen - four < 0.1 and eight <= sixteen


def test_all_state_of_a_request_goes_with_it() -> None:
    """Sums return to zero when everybody has left."""
    acceptance = Acceptance(WIDTHS)
    for uid in range(20):
        acceptance.join(uid, uid % 5)
    for uid in range(20):
        acceptance.leave(uid)
    assert acceptance.expected() == [0.0] * 4


def test_the_ramp_and_the_end_of_a_burst_try_no_other_width() -> None:
    """Each bucket lasts for few rounds there, too few to pay for what a trial or a probe costs."""
    chosen, best, source = policy(), policy(), random.Random(3)
    for uid in range(128):
        chosen.join(uid, None)
    for bucket in (*BUCKETS, *BUCKETS[-2::-1]):
        for _ in range(5):
            width = chosen.choose(bucket, bucket)
            rates = chosen.rates(bucket)
            assert rates[WIDTHS.index(width)] >= 0.97 * max(rates), bucket
            for uid in range(bucket):
                chosen.observe(uid, width - 1, accepted_drafts(source, conditional(P65), width - 1), False)
            chosen.landed(bucket, width, bucket, best.costs.cost(bucket, width))


def test_buckets_in_turn_are_tried_in_the_end() -> None:
    """Rows may cross the border of two buckets for ever."""
    chosen, widths = policy(), []
    chosen.join(1, None)
    for number in range(400):
        bucket = (1, 2)[number % 2]
        widths.append(chosen.choose(bucket, bucket))
        chosen.observe(1, widths[-1] - 1, widths[-1] - 1, False)
        chosen.landed(bucket, widths[-1], widths[-1], round_micros(bucket, widths[-1]))
    assert set(widths[:100]) == {16} and 1 in widths[100:]
