"""Widths where what a round costs follows from which experts its rows choose: warm-up's rows choose at random.

Rows of one text choose alike. Those of few requests touch more experts the more they are, until all are touched.
"""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

import pytest

from services.target.scheduling.width.width import adaptive_policy
from tests.unit.target.scheduling.acceptance_profiles import P30, P65, tokens_per_second

WIDTHS, BUCKETS = (1, 4, 8, 16), (1, 2, 4, 8, 16, 32, 64)
LAYERS, EXPERTS, TOP_K = 48, 128, 8
EXPERT, MIXER, HEAD = 9.44e6, 37.7e6, 622e6
"""Bytes of Qwen3-30B-A3B in bfloat16: an expert, a layer's attention, the head."""
READ = 4.3e6
"""Bytes a microsecond."""
DRAFT = 500.0
LEAST = 0.97


def distinct(chosen: list[float], rows: float) -> float:
    """Experts that rows touch, of which each is chosen with a chance of its own."""
    return float(sum(1.0 - (1.0 - chance) ** rows for chance in chosen))


def micros(touched: float, width: int) -> float:
    """A round that reads so many experts of each layer."""
    return (LAYERS * (touched * EXPERT + MIXER) + HEAD) / READ + (DRAFT if width > 1 else 0.0)


def uniform(bucket: int, width: int) -> float:
    """Rows choose at random, as those of warm-up do."""
    return micros(distinct([TOP_K / EXPERTS] * EXPERTS, bucket * width), width)


def topical(bucket: int, width: int) -> float:
    """Some experts are chosen more often, and further rows of a text bring fewer new ones."""
    weights = [(1 + number) ** -0.6 for number in range(EXPERTS)]
    chosen = [min(0.95, TOP_K * weight / sum(weights)) for weight in weights]
    return micros(distinct(chosen, bucket * width**0.85), width)


def warm() -> dict[tuple[int, int], float]:
    """What warm-up measures: rounds without drafts of rows that choose at random."""
    return {(bucket, width): uniform(bucket, width) - DRAFT * (width > 1) for bucket in BUCKETS for width in WIDTHS}


def best_fixed(requests: int, rates: Sequence[float], cost: Callable[[int, int], float]) -> float:
    """Tokens a second of the best width, as they are expected."""
    return max(requests * (1.0 + sum(rates[: width - 1])) / cost(requests, width) for width in WIDTHS) * 1e6


@pytest.mark.parametrize("cost", [uniform, topical])
@pytest.mark.parametrize("requests", [1, 8])
def test_the_chosen_width_is_near_the_best_one(requests: int, cost: Callable[[int, int], float], full: bool) -> None:
    """With --full at more requests, too: theirs is more to simulate."""
    for count, rates in product((requests, 4 * requests, 8 * requests) if full else (requests,), (P65, P30)):
        seeds, rounds = range(max(1, 4 // count)), 4800 if full else 1200
        reached = [
            tokens_per_second(adaptive_policy(WIDTHS, BUCKETS, warm()), count, rates, rounds, seed, micros_of=cost)
            for seed in seeds
        ]
        assert fmean(reached) >= LEAST * best_fixed(count, rates, cost)


def test_plain_rounds_are_left_again_when_texts_choose_alike() -> None:
    """Drafts did not pay while routes were spread; the same policy finds that they do now."""
    policy = adaptive_policy(WIDTHS, BUCKETS, warm())
    few, many = (0.55, 0.25, 0.1, *([0.0] * 12)), P65
    tokens_per_second(policy, 8, few, 800, 3, micros_of=uniform)
    assert policy.choose(8, 8) == 1, "what follows leaves plain rounds"
    reached = tokens_per_second(policy, 8, many, 2400, 4, micros_of=topical)
    assert reached >= LEAST * best_fixed(8, many, topical)
    assert policy.choose(8, 8) > 1
