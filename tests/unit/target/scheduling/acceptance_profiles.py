"""Rounds whose drafts match by given rates, to see which widths the policy picks and what that costs."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from services.target.scheduling.width.policy import WidthPolicy

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
WIDTHS = (1, 4, 8, 16)
P65 = (0.85, 0.74, 0.61, 0.55, 0.50, 0.45, 0.40, 0.33, 0.28, 0.23, 0.19, 0.14, 0.11, 0.08, 0.04)
P30 = (0.62, 0.45, 0.32, 0.22, 0.15, 0.10, 0.06, 0.04, 0.02, 0.01, 0.01, 0.0, 0.0, 0.0, 0.0)
P13 = (0.22, 0.06, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def round_micros(bucket: int, width: int) -> float:
    """A cost like that of a 4 B model on a large GPU: flat while memory-bound, then growing with the rows."""
    rows = bucket * width
    verify = 2700.0 if rows <= 128 else 2700.0 + 9.0 * (rows - 128)
    draft = 0.0 if width == 1 else 600.0 + 20.0 + 2.0 * rows
    return verify + draft + 5.0 * bucket


def micros_table() -> dict[tuple[int, int], float]:
    """Costs of all buckets and widths."""
    return {(bucket, width): round_micros(bucket, width) for bucket in BUCKETS for width in WIDTHS}


def conditional(rates: Sequence[float]) -> list[float]:
    """Chance that a draft matches given that all before it did, from unconditional rates."""
    return [after / before if before else 0.0 for before, after in pairwise((1.0, *rates))]


def accepted_drafts(source: random.Random, chances: Sequence[float], drafted: int) -> int:
    """Draws how many drafts of one row match."""
    for position in range(drafted):
        if source.random() >= chances[position]:
            return position
    return drafted


def tokens_per_second(
    policy: WidthPolicy,
    rows: int,
    rates: Sequence[float],
    rounds: int,
    seed: int,
    life: int = 250,
    micros_of: Callable[[int, int], float] = round_micros,
) -> float:
    """Serves `rows` streams of `life` tokens each, one after another, and counts tokens over simulated time."""
    source = random.Random(seed)
    chances = conditional(rates)
    bucket = next(size for size in BUCKETS if size >= rows)
    left = {uid: 1 + (uid * life) // rows for uid in range(rows)}
    for uid in left:
        policy.join(uid, None)
    following, tokens, micros = rows, 0, 0.0
    for _ in range(rounds):
        width = policy.choose(bucket, rows)
        took = micros_of(bucket, width) * source.uniform(0.97, 1.03)
        committed = 0
        for uid in list(left):
            accepted = accepted_drafts(source, chances, width - 1)
            committed += accepted + 1
            left[uid] -= accepted + 1
            policy.observe(uid, width - 1, accepted, left[uid] <= 0)
            if left[uid] <= 0:
                del left[uid]
                policy.leave(uid)
                left[following] = life
                policy.join(following, None)
                following += 1
        policy.landed(bucket, width, committed, took)
        tokens += committed
        micros += took
    return tokens / micros * 1e6
