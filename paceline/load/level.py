"""Runs a number of requests at one concurrency and sums up their times."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from paceline.load.sample import Endpoint, FailedError, Job, Sample


@dataclass(frozen=True)
class Level:
    """Results at one concurrency; times are milliseconds, `error` is what the first failed request met."""

    concurrency: int
    requests: int
    failed: int
    tokens: int
    wall_s: float
    tok_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    error: str = ""


def measure(endpoint: Endpoint, jobs: Sequence[Job], concurrency: int) -> Level:
    """Runs the jobs, at most `concurrency` at once, the next one as soon as one has ended."""
    began = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as threads:
        results = list(threads.map(lambda job: _tried(endpoint, job), jobs))
    wall_s = time.perf_counter() - began
    samples = [one for one in results if isinstance(one, Sample)]
    errors = [one for one in results if isinstance(one, str)]
    first = [one.first_s * 1e3 for one in samples]
    gaps = [one.gap_s * 1e3 for one in samples if one.gap_s is not None]
    tokens = sum(one.tokens for one in samples)
    return Level(
        concurrency=concurrency,
        requests=len(jobs),
        failed=len(errors),
        tokens=tokens,
        wall_s=wall_s,
        tok_s=tokens / wall_s,
        ttft_p50_ms=percentile(first, 50),
        ttft_p99_ms=percentile(first, 99),
        itl_p50_ms=percentile(gaps, 50),
        itl_p99_ms=percentile(gaps, 99),
        error=errors[0] if errors else "",
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)] if ordered else 0.0


def _tried(endpoint: Endpoint, job: Job) -> Sample | str:
    try:
        return endpoint.ask(job)
    except FailedError as error:
        return str(error)
