"""What both servers are asked: requests that come together, and requests that come one by one by chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LENGTH, TURNS = 512, 6
PROMPTS = (16, 40, 90, 180, 350, 640, 1_000, 1_400)
OUTS = (8, 30, 70, 150, 260, 400, 520, 600)
"""Tokens at eight equal steps of quantiles, from the least to the most: chats that are mostly short, with a long tail.
Between two of them lengths are even. They belong to a LENGTH of 512 and shrink with it."""


@dataclass(frozen=True)
class Asked:
    """One request: when it is sent, since the load began, its prompt, and how many tokens it asks for."""

    at_s: float
    prompt: Sequence[int]
    out: int
    seed: int


def together(count: int, vocab: int, draws: int, length: int = LENGTH) -> list[Asked]:
    """Requests of one length, all at once; another number of draws has other prompts and other acceptance."""
    source = random.Random(1_000_003 * draws + count)
    return [Asked(0.0, _prompt(source, length, vocab), length, source.randrange(1 << 31)) for _ in range(count)]


def by_chance(rate: float, seconds: float, vocab: int, seed: int, length: int = LENGTH) -> list[Asked]:
    """Requests of mixed lengths, `rate` a second, as a Poisson process has them."""
    source, at, asked = random.Random(seed), 0.0, []
    while (at := at + source.expovariate(rate)) < seconds:
        prompt, out = (_drawn(source, quantiles, length) for quantiles in (PROMPTS, OUTS))
        asked.append(Asked(at, _prompt(source, prompt, vocab), out, source.randrange(1 << 31)))
    return asked


def most_tok_s(requests: Sequence[Asked]) -> float:
    """Return tokens a second of a server that answers all of them as they come: no goodput of a load is higher."""
    return sum(one.out for one in requests) / max(one.at_s for one in requests)


def chats(count: int, vocab: int, draws: int, length: int = LENGTH) -> list[list[Asked]]:
    """Chats of an agent: TURNS turns, of which the first brings a system prompt and tools."""
    source = random.Random(1_000_003 * draws + 97 * count)
    words = [length + length // 2, *[length // 8] * (TURNS - 1)]
    return [
        [Asked(0.0, _prompt(source, each, vocab), length // 4, source.randrange(1 << 31)) for each in words]
        for _ in range(count)
    ]


def mean_out(length: int = LENGTH) -> float:
    """Return the mean tokens of an answer that comes by chance."""
    steps = [(low + high) / 2 for low, high in pairwise(OUTS)]
    return length / LENGTH * sum(steps) / len(steps)


def _drawn(source: random.Random, quantiles: Sequence[int], length: int) -> int:
    step, part = divmod(source.random() * (len(quantiles) - 1), 1.0)
    low, high = quantiles[int(step)], quantiles[int(step) + 1]
    return max(1, int(length / LENGTH * (low + part * (high - low))))


def _prompt(source: random.Random, length: int, vocab: int) -> list[int]:
    return source.choices(range(2, vocab), k=length)
