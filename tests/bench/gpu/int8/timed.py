"""Times of products in eight bits against wide ones, and of whole drafts, captured; each is checked before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.kernels.linear import reference
from services.common.kernels.linear.int8_kernel import Cut
from services.common.kernels.linear.int8_weight import Int8Weight, quantised
from tests.bench.gpu.int8.candidates import Product, candidates, in_cuda

Row = dict[str, Any]
_CACHE_BYTES, _MOST_COPIES = 256 << 20, 16
"""Weights that follow one another are together larger than any cache."""
_REPLAYS, _BATCHES = 3, 5
_LINES = 20_000
"""That are compared: exact sums of a whole head would take long."""


def product_rows(
    subject: Product, counts: Sequence[int], searched: bool, device: str, dtype: torch.dtype
) -> Iterator[Row]:
    """One row for each number of rows: the wide product, that of the table, the best cut, and whether bits differ."""
    eight, wide, x_TD = _made(subject, max(counts), device, dtype)
    for count in counts:
        some_TD, size = x_TD[:count], subject.depth * subject.outputs
        by_wide = _micros([partial(subject, some_TD, weight) for weight in wide], device)
        row: Row = {"product": subject.name, "rows": count, "wide_us": by_wide, "floor_us": round(size / 4.5e6, 1)}
        expected = subject(some_TD, eight[0])
        found: dict[str, float] = {}
        differ: list[str] = []
        cuts: list[Cut] = [*candidates(subject, count, searched)]
        cuts += in_cuda(subject, count) if searched and device == "cuda" else ()
        for place, listed in enumerate(cuts):
            name, cut = "/".join(str(int(value)) for value in listed), listed if place else None  # as it serves
            if not torch.equal(subject(some_TD, eight[0], cut), expected):
                differ.append(name)
            found[name] = _micros([partial(subject, some_TD, weight, cut) for weight in eight], device)
            row.setdefault("table_us", found[name])
        if found:
            best = min(found, key=found.__getitem__)
            row |= {"best_us": found[best], "best": best, "times": round(found[best] / by_wide, 3)}
        yield row | {"differ": differ, "cuts_all": found}


def reference_row(subject: Product, counts: Sequence[int], device: str, dtype: torch.dtype) -> Row:
    """Whether the table's cuts give the exact sums, by products alone."""
    (eight, *_), _, x_TD = _made(subject, max(counts), device, dtype, copies=1)
    plain, lines = Product(subject.name, subject.outputs, subject.depth), min(subject.outputs, _LINES)
    whole = reference.linear(x_TD, eight.lines(0, lines))
    differ = [count for count in counts if not torch.equal(plain(x_TD[:count], eight)[:, :lines], whole[:count])]
    return {"product": subject.name, "against": "reference", "compared": len(counts), "differ": differ}


def _made(
    subject: Product, rows: int, device: str, dtype: torch.dtype, copies: int = 0
) -> tuple[list[Int8Weight], list[Tensor], Tensor]:
    generator = torch.Generator(device).manual_seed(8)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)

    bytes_ = subject.outputs * subject.depth
    copies = copies or (1 if device == "cpu" else min(_MOST_COPIES, 1 + _CACHE_BYTES // bytes_))
    eight = [quantised(random(subject.outputs, subject.depth).mul_(subject.depth**-0.5)) for _ in range(copies)]
    return eight, [weight.widened() for weight in eight], random(rows, subject.depth)


def _micros(steps: Sequence[Callable[[], object]], device: str) -> float:
    """Microseconds of a step: the median of replays of all of them, one after the other."""
    graphs = StepGraphs(device)

    def run() -> None:
        for step in steps:
            step()

    graphs.capture("steps", run, ())
    return round(replayed(lambda: graphs.replay("steps"), device) / len(steps), 2)


def replayed(replay: Callable[[], None], device: str) -> float:
    """Median microseconds of a call, from batches of calls in a row."""
    batches, replays = (1, 1) if device == "cpu" else (_BATCHES, _REPLAYS)
    replay()
    times = []
    for _ in range(batches):
        _synchronise(device)
        start = time.perf_counter()
        for _ in range(replays):
            replay()
        _synchronise(device)
        times.append((time.perf_counter() - start) / replays * 1e6)
    return statistics.median(times)


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
