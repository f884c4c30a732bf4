"""python -m tests.bench.gpu.experts: checks the bits of a mixture of experts on a GPU, then times it.

Random weights of one layer in the shapes of Qwen3-30B-A3B and Qwen3.5-35B-A3B, and a router that spreads. Bits first:
rows beside many numbers of others, in every tiling, beside padding and NaN, and from a captured graph. Then the time of
a layer, by launch and as a whole, with our own tiling and the best one. Beside it stand the bytes of the experts that
were chosen (4.3 TB/s) or their flops (790 TFLOP/s). The time is of the router's product and all behind it.
Under TRITON_INTERPRET=1 tiny shapes are checked, and nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from services.common.kernels.ahead import compiled_ahead
from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.experts.alone.kernel import mix_alone, shape_alone
from services.common.kernels.experts.kernel import (
    FEW,
    ExpertStack,
    Rating,
    Routes,
    combine,
    multiply_down,
    multiply_experts,
    multiply_gated,
    route,
    sort,
)
from services.common.kernels.experts.tiling import Tiling, in_tiles, tiling
from services.common.kernels.linear import Normed, linear_normed
from services.common.kernels.linear.cublas import keep_order

EPS, READ, FLOPS = 1e-6, 4.3e12, 790e12
COPIES, TURNS, LOOPS = 3, 4, 5
"""Layers in turn, so that no weight stays in L2; how often they stand in a graph, and how often it is timed."""
ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 2048)
HEIGHTS = (16, 32, 64, 128)
STAGES = ("gates", "route", "sort", "up", "down", "combine")
SERVED = "served"
"""All that serves rows: a row alone has fewer launches than stages, where the GPU takes them."""


@dataclass(frozen=True)
class Shape:
    """A layer's experts."""

    name: str
    hidden: int
    inner: int
    count: int
    top_k: int
    rated: bool = False
    """By sigmoids and a bias, with one expert more that all rows take, up to as many rows as one program places."""


SHAPES = (
    Shape("30B-A3B", 2048, 768, 128, 8), Shape("35B-A3B", 2048, 512, 256, 8), Shape("laguna", 2048, 512, 256, 8, True)
)  # fmt: skip
TINY = (Shape("tiny", 48, 32, 6, 3), Shape("tiny rated", 48, 32, 6, 3, True))


class Layer:
    """Weights of a layer, rows that wait for their norm, and what the mixture makes of them."""

    def __init__(self, shape: Shape, rows: int, device: str, dtype: torch.dtype, seed: int) -> None:
        generator = torch.Generator(device).manual_seed(seed)

        def drawn(*size: int, std: float = 0.02) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float32, device=device).mul_(std).to(dtype)

        self.shape, self.rows_TD = shape, drawn(rows, shape.hidden, std=1.0)
        self.squares_T = (self.rows_TD.double().square().sum(1) * 2.0**24).round().long()
        self.router_ED = drawn(-(-shape.count // 16) * 16, shape.hidden)
        there = shape.count + shape.rated
        gate_up_EFD = torch.cat([drawn(1, 2 * shape.inner, shape.hidden) for _ in range(there)])
        down_EDF = torch.cat([drawn(1, shape.hidden, shape.inner) for _ in range(there)])
        # What all rows take lies behind the experts, in the same memory, and is not counted among them.
        self.stack = ExpertStack(gate_up_EFD[: shape.count], down_EDF[: shape.count], followed=shape.rated)
        self.rating = Rating(drawn(shape.count), factor=2.5) if shape.rated else None
        self.norm_D = torch.ones(shape.hidden, dtype=dtype, device=device)
        self.stream_TD, self.sums_T = torch.zeros_like(self.rows_TD), torch.zeros_like(self.squares_T)

    def gates(self, rows: slice) -> Tensor:
        """The router's product of some rows."""
        return linear_normed(Normed(self.rows_TD[rows], self.squares_T[rows]), self.router_ED, EPS)

    def mixed(
        self, rows: slice, gates_TF: Tensor, cut: Tiling | None, live_T: Tensor | None = None, nan: int | None = None
    ) -> Tensor:
        """The stream, zeros before, after some rows; one of them may be NaN."""
        rows_TD = self.rows_TD[rows]
        if nan is not None:
            rows_TD = rows_TD.clone()
            rows_TD[nan] = float("nan")
        routes = self.routed(gates_TF, live_T)
        parts_TKD = multiply_experts(Normed(rows_TD, self.squares_T[rows]), routes, self.stack, EPS, cut)
        squares_T = torch.zeros(len(rows_TD), dtype=torch.int64, device=rows_TD.device)
        stream_TD = torch.zeros_like(rows_TD)
        return combine(parts_TKD, routes, None, None, stream_TD, self.norm_D, squares_T, EPS)[1]

    def alone(self, row: int, stream_TD: Tensor) -> bool:
        """Add to a stream what experts make of one row, in the launch that serves a row alone; False: there is none."""
        own, rating = slice(row, row + 1), self.rating or Rating()
        normed, gates_TF = Normed(self.rows_TD[own], self.squares_T[own]), self.gates(own)
        shape = shape_alone(normed, gates_TF, self.stack, rating, self.shape.count, self.shape.top_k, renorm=True)
        if shape is not None:
            ends = stream_TD, self.norm_D, self.sums_T[:1], EPS, 0.0
            mix_alone(
                normed, gates_TF, None, self.stack, rating, shape, None, *ends, shared_gated=False, early=True
            )  # fmt: skip
        return shape is not None

    def stages(self, count: int, cut: Tiling, last: str) -> list[Tensor]:
        """Launch what a layer launches for its first rows, up to a stage; returns all that was written."""
        if last == SERVED:
            if count == 1 and self.alone(0, self.stream_TD[:1]):
                return [self.stream_TD]
            last = STAGES[-1]
        normed = Normed(self.rows_TD[:count], self.squares_T[:count])
        made = [self.gates(slice(0, count))]
        for stage in STAGES[1 : STAGES.index(last) + 1]:
            if stage == "route":
                routes = self.routed(made[0])
            elif stage == "sort":
                places = sort(routes, cut)
            elif stage == "up":
                made.append(multiply_gated(normed, self.stack, places, cut, EPS))
            elif stage == "down":
                made.append(multiply_down(made[-1], self.stack, routes, places, cut))
            else:
                stream_TD, sums_T = self.stream_TD[:count], self.sums_T[:count]
                combine(made[-1], routes, None, None, stream_TD, self.norm_D, sums_T, EPS)
        return made

    def routed(self, gates_TF: Tensor, live_T: Tensor | None = None) -> Routes:
        """Experts of rows."""
        few = self.stack.followed and len(gates_TF) <= FEW
        return route(gates_TF, live_T, self.shape.count, self.shape.top_k, True, None, self.rating, few, early=few)


_NARROW = (
    (64, 64, 4, 4), (64, 64, 4, 8), (64, 128, 4, 3), (64, 128, 4, 4), (64, 128, 4, 5),
    (64, 256, 4, 3), (64, 256, 4, 2), (128, 64, 4, 4), (128, 128, 4, 4), (128, 128, 8, 4), (128, 64, 8, 6),
)  # fmt: skip
_WIDE = (
    (128, 64, 4, 3), (128, 64, 8, 3), (256, 64, 8, 4), (256, 64, 8, 4, 32), (128, 64, 4, 3, 32),
    (256, 64, 8, 4, 16),
)  # fmt: skip
"""Lines, columns, warps, stages, and how many more rows a tile may have: of fewer than 64 rows, and of others."""


def cuts(rows: int, tiny: bool, depth: int = 64) -> tuple[Tiling, ...]:
    """Tilings that are compared for tiles of so many rows.

    Tiny ones have the `depth` of ours: there the interpreter adds up a step's columns as its library likes.
    """
    if tiny:
        return Tiling(rows, 64, depth), Tiling(rows, 32, depth), Tiling(rows, 64, depth, more=16)
    return tuple(Tiling(rows, *rest) for rest in (_NARROW if rows < 64 else _WIDE))


def differing(layer: Layer, counts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Each check with the number of its rows that differ from those of the widest, by our own tiling."""
    every = slice(0, len(layer.rows_TD))
    gates_TF = layer.gates(every)
    expected_TD = layer.mixed(every, gates_TF, None)
    own = tiling(len(layer.rows_TD) * layer.shape.top_k, layer.shape.count)
    tiny = layer.shape in TINY

    def differ(got_TD: Tensor, rows: slice) -> int:
        return int((got_TD != expected_TD[rows]).any(1).sum())

    for rows in HEIGHTS[: 2 if tiny else 4]:
        for cut in cuts(rows, tiny, own.depth):
            yield f"{cut}", differ(layer.mixed(every, gates_TF, cut), every)
    for count in counts:
        for first in (0, len(layer.rows_TD) - count):
            part = slice(first, first + count)
            yield f"{count} rows from {first}, given gates", differ(layer.mixed(part, gates_TF[part], None), part)
            yield f"{count} rows from {first}, own gates", differ(layer.mixed(part, layer.gates(part), None), part)
    live_T = torch.arange(len(layer.rows_TD), device=gates_TF.device) % 3 != 2
    padded_TD = layer.mixed(every, gates_TF, None, live_T)
    yield "beside padding", int((padded_TD != expected_TD).any(1)[live_T].sum() + padded_TD[~live_T].any(1).sum())
    poisoned_TD = layer.mixed(every, gates_TF, None, nan=5)
    yield "beside NaN", int((poisoned_TD != expected_TD).any(1).sum() - 1)
    layer.stages(len(layer.rows_TD), own, STAGES[-1])
    yield "by stages", differ(layer.stream_TD, every)
    if not INTERPRETED:
        streams_TD = torch.zeros_like(layer.rows_TD[:64])
        rows_alone = range(0 if layer.stack.followed else len(streams_TD))
        if all(layer.alone(row, streams_TD[row : row + 1]) for row in rows_alone) and rows_alone:
            yield "rows alone", differ(streams_TD, slice(0, len(streams_TD)))
        few = slice(0, 8)
        graph_TD, run = captured(lambda: layer.mixed(few, layer.gates(few), None))
        run()
        yield "captured", differ(graph_TD, few)


def captured(work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """Return what a graph writes, and the graph; it ran once before."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return result, graph.replay


def micros(layers: Sequence[Layer], rows: int, cut: Tiling, last: str = STAGES[-1]) -> float:
    """Least microseconds of a layer up to a stage, of several layers in turn in one graph."""

    def work() -> Tensor:
        return [layer.stages(rows, cut, last)[-1] for layer in (*layers,) * TURNS][-1]

    _, run = captured(work)
    times: list[float] = []
    for _ in range(LOOPS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(4):
            run()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) * 1e3 / (4 * TURNS * len(layers)))
    return min(times)


def floor(layers: Sequence[Layer], rows: int) -> tuple[float, float]:
    """Distinct experts of a layer, and microseconds that their bytes or their flops ask for."""
    shape, part = layers[0].shape, slice(0, rows)
    chosen = [layer.routed(layer.gates(part)).ids_TK.unique().numel() for layer in layers]
    distinct = sum(chosen) / len(chosen)
    numbers = 3 * shape.hidden * shape.inner
    return distinct, max(2 * distinct * numbers / READ, 2 * rows * shape.top_k * numbers / FLOPS) * 1e6


def candidates(shape: Shape, rows: int) -> tuple[Tiling, ...]:
    """Return tilings for so many rows, our own first: tiles as high as its own, half and twice that."""
    own = own_cut(rows * shape.top_k, shape.count)
    heights = dict.fromkeys((own.rows, max(16, own.rows // 2), min(128, 2 * own.rows)) if rows > FEW else (own.rows,))
    return tuple(dict.fromkeys((own, *(cut for height in heights for cut in cuts(height, tiny=False)))))


def compile_all(layers: Sequence[Layer], counts: Sequence[int]) -> None:
    """Compile what will be timed, in threads."""
    layer = layers[0]
    with compiled_ahead(os.cpu_count() or 1):
        for rows in counts:
            for cut in candidates(layer.shape, rows):
                layer.stages(rows, cut, STAGES[-1])
                layer.stages(rows, cut, SERVED)
        for height in HEIGHTS:
            for cut in cuts(height, tiny=False):
                layer.stages(len(layer.rows_TD), cut, STAGES[-1])


def each_of_table(layers: Sequence[Layer], rows: int) -> Iterator[str]:
    """Yield what both products take by each tiling."""
    routed = micros(layers, rows, candidates(layers[0].shape, rows)[0], "sort")
    for cut in candidates(layers[0].shape, rows):
        up, down, whole = (micros(layers, rows, cut, stage) for stage in ("up", "down", "combine"))
        yield f"{layers[0].shape.name} {rows:5} up {up - routed:6.1f} down {down - up:6.1f} whole {whole:7.1f} {cut}"


def own_cut(pairs: int, experts: int) -> Tiling:
    """Return how so many pairs are cut where CUDA C++ serves."""
    return in_tiles(pairs, experts) or tiling(pairs, experts)


def row_of_table(layers: Sequence[Layer], rows: int, until: float) -> str:
    """Time our own tiling and, until the time is over, others."""
    shape = layers[0].shape
    own = own_cut(rows * shape.top_k, shape.count)
    distinct, bytes_us = floor(layers, rows)
    mine = micros(layers, rows, own, SERVED)
    best, took = own, mine
    for cut in candidates(shape, rows):
        if time.monotonic() < until and (found := micros(layers, rows, cut)) < took:
            best, took = cut, found
    upto = [micros(layers, rows, best, stage) for stage in STAGES]
    parts = " ".join(f"{now - before:6.1f}" for before, now in pairwise((0.0, *upto)))
    more = f"+{best.more}" if best.more else ""
    named = f"{best.rows}{more}x{best.band}x{best.depth} w{best.warps} s{best.stages}"
    times = f"{bytes_us:8.1f} {mine:8.1f} {mine / bytes_us:5.2f} {took:8.1f} {took / bytes_us:5.2f}"
    return f"{shape.name} {rows:5} {distinct:7.1f} {times} {parts} {named}"


def main() -> int:
    """Returns 1 where a bit differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long other tilings are tried")
    parser.add_argument("--shapes", nargs="+", choices=[shape.name for shape in SHAPES], default=["30B-A3B", "35B-A3B"])
    parser.add_argument("--each", action="store_true", help="tells what the products take by each tiling, and no more")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="numbers of rows that are timed")
    asked = parser.parse_args()
    device, dtype = ("cpu", torch.float32) if INTERPRETED else ("cuda", torch.bfloat16)
    most, counts = (14, (1, 7)) if INTERPRETED else (max(ROWS), (1, 2, 8, 16, 17, 64, 65, 256))
    differ, table = 0, list[str]()
    if not INTERPRETED:
        keep_order()
    shapes = TINY if INTERPRETED else tuple(shape for shape in SHAPES if shape.name in asked.shapes)
    with torch.inference_mode():
        for shape in shapes:
            layers = [Layer(shape, most, device, dtype, seed) for seed in range(1 if INTERPRETED else COPIES)]
            if not INTERPRETED:
                compile_all(layers, asked.rows)
            checks = list(differing(layers[0], counts))
            differ += sum(count for _, count in checks)
            for name, count in checks:
                if count:
                    print(f"{shape.name}: {count} rows differ: {name}", flush=True)
            print(f"{shape.name}: {len(checks)} checks of bits, {sum(c for _, c in checks)} rows differ", flush=True)
            share = time.monotonic() + asked.seconds / len(shapes)
            if asked.each and not INTERPRETED:
                table += [line for rows in asked.rows for line in each_of_table(layers, rows)]
            elif not INTERPRETED:
                table += [row_of_table(layers, rows, share) for rows in asked.rows]
            del layers
    if table:
        print(
            "model    rows experts  floor_us   ours_us ratio  best_us ratio  "
            + "  ".join(f"{stage:>5}" for stage in STAGES)
            + "  tiling (rows x band x depth)"
        )
        print("\n".join(table))
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
