"""Rows that follow each request: faster where requests differ, and nothing lost where they are alike."""

from services.target.core.width import Ragged, Width, order_of
from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from tests.unit.target.scheduling.served_loads import Drafter, Served, fresh_policy, ragged_micros, round_micros

CHAINS = (1, 4, 6, 8, 12, 16)
EVERY = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
RAGGED = tuple(Ragged(16, rows, 2) for rows in (32, 64, 96, 128, 192, 256, 384, 512, 768))
BOTH: tuple[Width, ...] = tuple(sorted((*CHAINS, *RAGGED), key=order_of))
MIXED = [Drafter([(chance,)] * 15) for chance in (0.93, 0.8, 0.65, 0.45)]
"""Requests of four kinds of text."""
ALIKE = [Drafter([(0.75,)] * 15)]
TOKENS, TIMES = 192, 6
"""Of a request, and how many of them are served one behind the other."""
BARS = {32: (1.025, 1.03), 64: (1.025, 1.03), 128: (1.06, 1.06)}
"""Against the best width for all, and against widths that are chosen."""
MICROS = {**round_micros(CHAINS), **ragged_micros(RAGGED, round_micros(EVERY), 1.01)}
"""A piece reads its context again: 1 % more than chains of as many rows."""


def speeds(drafters: list[Drafter], requests: int, seeds: int) -> tuple[float, float]:
    """Speed with rows that follow requests, against the best width for all, and against widths chosen as freely."""

    def spent(policy: WidthPolicy, seed: int) -> float:
        return Served(policy, MICROS, drafters, seed).load(TIMES * requests, TOKENS, at_once=requests)

    def total(widths: tuple[Width, ...]) -> float:
        return sum(spent(fresh_policy(widths, MICROS), seed) for seed in range(seeds))

    fixed = min(sum(spent(FixedWidth(width), seed) for seed in range(seeds)) for width in CHAINS[1:4])
    both = total(BOTH)
    return fixed / both, total(CHAINS) / both


def test_requests_that_differ_are_served_faster(full: bool) -> None:
    """Thirty-two at once, and with --full more."""
    for requests in (32, 64, 128) if full else (32,):
        fixed, chosen = speeds(MIXED, requests, 2 if full and requests < 128 else 1)
        assert fixed > BARS[requests][0] and chosen > BARS[requests][1], requests


def test_requests_that_are_alike_lose_nothing(full: bool) -> None:
    """Eight and thirty-two at once, and with --full more."""
    for requests in (8, 32, 64, 128) if full else (8, 32):
        _, chosen = speeds(ALIKE, requests, 2 if full and requests < 128 else 1)
        assert chosen > (0.99 if full else 0.985), requests
