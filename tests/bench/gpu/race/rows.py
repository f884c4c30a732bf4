"""From runs of a load to a row of the race's result."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from tests.bench.gpu.race.meter import Sample, beside
from tests.bench.gpu.race.plan import PROMPT, Job

Row = dict[str, Any]
STEADY = 0.03
"""Two legs of one side may differ by so much."""


class Drafter(NamedTuple):
    """The type of a drafter's weights, and whether its blocks are as wide as a round, as all of vLLM's are."""

    weights: str = "dtype"
    short_blocks: bool = False


@dataclass(frozen=True)
class Repeat:
    """One run of a load, and of its prompts with one token each just before; `began` and `ended` are monotonic."""

    began: float
    ended: float
    prompts_s: float
    tokens: int

    @property
    def seconds(self) -> float:
        """Of the whole load."""
        return self.ended - self.began


@dataclass(frozen=True)
class Measured:
    """A load's repeats in one leg, and of one run when and how many tokens of each stream arrived since its begin."""

    repeats: tuple[Repeat, ...]
    streams: tuple[tuple[tuple[float, int], ...], ...]


def row_of(
    system: str, job: Job, legs: Sequence[Measured], samples: Sequence[Sample], drafter: Drafter | None = None
) -> Row:
    """Return the row of a job, of all its legs: medians, and every repeat; vLLM's has no `drafter` told.

    A closed loop has no prompts apart, and no whole load: its speed is that of its seconds.
    """
    repeats = [repeat for leg in legs for repeat in leg.repeats]
    tokens = statistics.median(repeat.tokens for repeat in repeats)
    whole_s = statistics.median(repeat.seconds for repeat in repeats)
    prompts_s = statistics.median(repeat.prompts_s for repeat in repeats)
    power = beside(samples, [(repeat.began, repeat.ended) for repeat in repeats])
    closed = bool(job.seconds)
    return {
        "system": system,
        "go": job.go,
        "profile": job.profile,
        "prompt": PROMPT,
        "out": job.out,
        "concurrency": job.concurrency,
        "mode": job.mode,
        "k": job.k,
        "drafter_weights": drafter and drafter.weights,
        "short_blocks": drafter and drafter.short_blocks,
        "decode_tok_s": None if closed else round((tokens - job.concurrency) / (whole_s - prompts_s)),
        "whole_tok_s": round(tokens / whole_s),
        "prompts_s": None if closed else round(prompts_s, 4),
        **_of_streams([stream for leg in legs for stream in leg.streams], job),
        "clock_mhz": power.clock_mhz,
        "watts": power.watts,
        "all": [] if closed else [_repeat(repeat, job) for repeat in repeats],
    }


def unsteady(job: Job, legs: Sequence[Measured]) -> Row | None:
    """Return how far the legs of a job lie apart, if that is too far for a claim."""
    if len(legs) < 2:
        return None
    speeds = [statistics.median(repeat.tokens / repeat.seconds for repeat in leg.repeats) for leg in legs]
    apart = max(speeds) / min(speeds) - 1
    return {"go": job.go, "mode": job.mode, "k": job.k, "apart": round(apart, 3)} if apart > STEADY else None


def _repeat(repeat: Repeat, job: Job) -> Row:
    decode = (repeat.tokens - job.concurrency) / (repeat.seconds - repeat.prompts_s)
    return {
        "decode_tok_s": round(decode),
        "whole_tok_s": round(repeat.tokens / repeat.seconds),
        "prompts_s": round(repeat.prompts_s, 4),
    }


def _of_streams(streams: Sequence[Sequence[tuple[float, int]]], job: Job) -> Row:
    """Times in milliseconds, and what rounds brought; a stream's first news is its prompt's, its last may be cut.

    Times between tokens are those of a whole run, and those that begin before its last first token; loops have no such.
    """
    first = [stream[0][0] * 1e3 for stream in streams]
    pairs = [(before * 1e3, after * 1e3) for stream in streams for (before, _), (after, _) in pairwise(stream)]
    ready = 0.0 if job.seconds else max(first, default=0.0)
    beside = [after - before for before, after in pairs if before < ready]
    rounds = [count for stream in streams for _, count in stream[1:-1]]
    speculates = job.mode != "plain" and bool(rounds)
    longest = max(rounds, default=1)
    return {
        "tau": round(statistics.mean(rounds), 3) if rounds else None,
        "accepted_by_position": [
            round(sum(count > place for count in rounds) / len(rounds), 3) for place in range(1, longest)
        ] if speculates else None,
        "ttft_ms": _percentiles(first, (50, 99)),
        "itl_ms": _percentiles([after - before for before, after in pairs], (99,)),
        "itl_beside_prompts_ms": _percentiles(beside, (99,)),
    }  # fmt: skip


def _percentiles(values: Sequence[float], wanted: Sequence[int]) -> Mapping[str, float | None]:
    ordered = sorted(values)
    return {f"p{one}": round(ordered[min(len(ordered) - 1, len(ordered) * one // 100)], 2) if ordered else None
            for one in wanted}  # fmt: skip
