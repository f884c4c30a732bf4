"""Captures every step, checks that rows are equal in all of them, and measures what a verify costs."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product

from services.common.serving.progress import MEASURED, Progress
from services.target.core.width import Ragged, Width
from services.target.device.context import Pool
from services.target.device.exact.check import ExactCheck
from services.target.device.exact.subject import CapturedSteps
from services.target.device.packing import Pack
from services.target.device.random_rows import random_rows
from services.target.device.steps import Steps, kind_of, shape_of, synchronise
from services.target.device.times import KeptTimes

REPEATS = 3
_ROUNDS = "rounds"
Cell = tuple[int, Width]


def warm_up(
    pool: Pool,
    steps: Steps,
    check: ExactCheck | None = None,
    threads: int = 1,
    beside: AbstractContextManager[None] = nullcontext(),
    times: KeptTimes | None = None,
) -> dict[Cell, float]:
    """Captures all steps; returns microseconds by (bucket, width) of a greedy verify of pad rows, trees among them.

    Pad rows run every product that real rows run, but get no expert: where there are experts, rows are those of
    sequences of random tokens. Attention over a long context is missing; live rounds correct the table. With more than
    one of `threads` kernels are compiled before, unless an earlier start has compiled the same. What is done `beside`
    captures is over before rows are compared and times taken. Rounds run once where `times` has theirs.

    Raises:
        PacelineError: By the check, rows differ between shapes, and that is not allowed.
    """
    steps.round.set_rows(())
    captured_before = check is not None and check.recall()
    with beside:
        steps.compile_ahead(threads, captured_before)
        steps.capture()
    if check is not None:
        check.judge(CapturedSteps(pool, steps))
    shapes = tuple(product(pool.settings.buckets, pool.settings.every_width))
    known = times.recall(_ROUNDS, shapes) if times is not None else None
    costs = _costs(pool, steps, shapes, 1 if known else REPEATS)
    if steps.graphs.compiles:  # the first launch of a graph takes longer than others; elsewhere a capture is a run
        for pack in pool.settings.every_pack:
            steps.run_prefill(Pack(pack, []))
        synchronise(pool.device)
    if times is not None and known is None:
        times.keep(_ROUNDS, costs)
    return known or costs


def _costs(pool: Pool, steps: Steps, shapes: Sequence[Cell], repeats: int) -> dict[Cell, float]:
    """Runs a round of each shape, and returns its microseconds."""
    costs, progress = dict[Cell, float](), Progress(MEASURED, len(shapes))
    with random_rows(pool, steps) if pool.model.spec.routes else nullcontext(()) as slots:
        for bucket, width in shapes:
            seated = slots[:bucket]
            steps.round.set_rows(seated)
            if isinstance(width, Ragged):
                steps.seat(width, seated if seated and width.fits(len(seated)) else ())
            costs[bucket, width] = _measure(pool, steps, bucket, width, repeats)
            progress.add()
    return costs


def _measure(pool: Pool, steps: Steps, bucket: int, width: Width, repeats: int) -> int:
    best, shape = float("inf"), shape_of(bucket, width)
    kind = kind_of(pool.settings, shape, width, int(width))
    for _ in range(repeats):
        synchronise(pool.device)
        start = time.perf_counter()
        steps.run_verify(*shape, "greedy", kind)
        synchronise(pool.device)
        best = min(best, time.perf_counter() - start)
    return max(1, round(best * 1e6))
