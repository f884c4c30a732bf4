"""A burst of prompts in one process, from its arrival to its last first token, and every pack of prompts alone.

`packs_us` is what the packs of the burst take alone, so `gap_share` is what the host, first tokens and copies add.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from services.common.request.sampling import SamplingParams, StopParams
from services.target.core.plan import Chunk, Plan
from services.target.core.request import RequestSpec
from services.target.core.round import RoundOutput
from services.target.device.packing import packed
from services.target.device.shapes import PackShape
from tests.bench.gpu.prefill import Yardstick
from tests.bench.gpu.rig import Rig
from tests.bench.load.records import percentile

Row = dict[str, Any]
REPEATS = 5


@dataclass
class Burst:
    """What one burst took, in seconds; `packs` are the shapes that it ran."""

    seconds: float = 0.0
    host: float = 0.0
    before_launch: float = 0.0
    first_tokens: list[float] = field(default_factory=list)
    packs: list[PackShape] = field(default_factory=list)


def burst_rows(rig: Rig, prompts: int, length: int) -> list[Row]:
    """One row for each pack, filled with such prompts, and one for the burst."""
    alone = pack_rows(rig, length)
    micros = {PackShape(row["segments"], row["width"]): row["us"] for row in alone}
    numbers = count()
    _run(rig, prompts, length, numbers)
    runs = [_run(rig, prompts, length, numbers) for _ in range(REPEATS)]
    whole = statistics.median(run.seconds for run in runs)
    packs_us = sum(micros[shape] for shape in runs[-1].packs)
    first = [statistics.median(percentile(run.first_tokens, part) for run in runs) for part in (0.5, 0.99)]
    row = {
        "step": "burst",
        "prompts": prompts,
        "context": length,
        "seconds": round(whole, 4),
        "seconds_all": [round(run.seconds, 4) for run in runs],
        "ms_a_prompt": round(whole / prompts * 1e3, 3),
        "first_token_ms": {"p50": round(first[0] * 1e3, 1), "p99": round(first[1] * 1e3, 1)},
        "packs": [[shape.segments, shape.width] for shape in runs[-1].packs],
        "packs_us": round(packs_us),
        "gap_share": round(1 - packs_us / (whole * 1e6), 4),
        "host_ms": round(statistics.median(run.host for run in runs) * 1e3, 2),
        "before_launch_ms": round(statistics.median(run.before_launch for run in runs) * 1e3, 2),
    }
    return [*alone, row]


def pack_rows(rig: Rig, length: int) -> list[Row]:
    """Microseconds of each pack, full of prompts from their first token on, beside its products in the library."""
    yardstick, rows = Yardstick(rig), []
    rig.seat(rig.settings.slots, 0, room=length)
    for shape in rig.pool.settings.packs:
        chunks = _filling(shape, length)
        (pack,) = packed(chunks, [shape])
        whole = rig.micros(lambda pack=pack: rig.steps.run_prefill(pack), 3, 3)  # type: ignore[misc]
        products = yardstick.products(shape.rows)
        rows.append({
            "step": "pack",
            "segments": shape.segments,
            "width": shape.width,
            "rows": shape.rows,
            "context": length,
            "us": round(whole, 1),
            "us_a_prompt": round(whole / shape.rows * length, 1),
            "products_us": round(products, 1),
            "ratio": round(whole / products, 3),
        })  # fmt: skip
    rig.slots.active_S.fill_(False)
    return rows


def _filling(shape: PackShape, length: int) -> list[Chunk]:
    """Chunks of as many prompts as fill a pack, the last one cut."""
    chunks: list[Chunk] = []
    left = shape.segments
    while left > 0:
        tokens = min(length, left * shape.width)
        chunks.append(Chunk(len(chunks), 1, 0, tuple(range(17, 17 + tokens)), last=tokens == length))
        left -= -(-tokens // shape.width)
    return chunks


def _run(rig: Rig, prompts: int, length: int, numbers: count[int]) -> Burst:
    """All at once, each with one token; a round is launched before the one ahead of it is read, as the engine does."""
    runner, scheduler, burst = rig.worker.runner, rig.worker.scheduler, Burst()
    specs = [_spec(next(numbers), length, rig.settings.shape.vocab) for _ in range(prompts)]
    flights: deque[tuple[Plan, RoundOutput]] = deque()
    rig.synchronise()
    begun = time.perf_counter()
    for spec in specs:
        scheduler.add(spec, None, time.monotonic())
    while True:
        start = time.perf_counter()
        plan = scheduler.plan(time.monotonic(), speculate=False)
        if not plan.empty:
            runner.prepare(plan)
            flights.append((plan, runner.launch(plan, drafted=False)))
            burst.packs += [pack.shape for pack in packed(plan.chunks, rig.pool.settings.packs)]
            burst.before_launch = burst.before_launch or time.perf_counter() - begun
        burst.host += time.perf_counter() - start
        if not flights:
            burst.seconds = time.perf_counter() - begun
            return burst
        if plan.empty or len(flights) > runner.look_ahead:
            launched, output = flights.popleft()
            commit = scheduler.commit(launched, output.land(), time.monotonic())
            burst.first_tokens += [time.perf_counter() - begun for news in commit.progress if news.tokens]


def _spec(number: int, length: int, vocab: int) -> RequestSpec:
    ids = tuple(random.Random(number).choices(range(2, vocab), k=length))
    stopping = StopParams(max_tokens=1, ignore_eos=True)
    return RequestSpec(f"b{number}", ids, length, SamplingParams(), stopping, salt=f"{number}".encode())
