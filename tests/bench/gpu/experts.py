"""python -m tests.bench.gpu.experts: checks the bits of a mixture of experts on a GPU, then times it.

Random weights of one layer in the shapes of Qwen3-30B-A3B and Qwen3.5-35B-A3B, and a router that spreads. Bits first:
rows beside many numbers of others, in every tiling, beside padding and NaN, and from a captured graph. Then the time of
a layer with the best tiling, beside the bytes of the experts that were chosen (4.6 TB/s) or their flops (790 TFLOP/s).
Under TRITON_INTERPRET=1 tiny shapes are checked, and nothing is timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.experts.kernel import ExpertStack, Routes, combine, multiply_experts, route
from services.common.kernels.experts.tiling import Tiling, tiling
from services.common.kernels.linear import Normed, linear_normed
from services.common.kernels.linear.cublas import keep_order

EPS, READ, FLOPS = 1e-6, 4.6e12, 790e12
COPIES, LOOPS = 3, 5
"""Layers in turn, so that no weight stays in L2, and how often a graph of them is timed."""
ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 2048)


@dataclass(frozen=True)
class Shape:
    """A layer's experts."""

    name: str
    hidden: int
    inner: int
    count: int
    top_k: int


SHAPES = (Shape("30B-A3B", 2048, 768, 128, 8), Shape("35B-A3B", 2048, 512, 256, 8))
TINY = (Shape("tiny", 48, 32, 6, 3),)


class Layer:
    """Weights of a layer, rows that wait for their norm, and what the mixture makes of them."""

    def __init__(self, shape: Shape, rows: int, device: str, dtype: torch.dtype, seed: int) -> None:
        generator = torch.Generator(device).manual_seed(seed)

        def drawn(*size: int, std: float = 0.02) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float32, device=device).mul_(std).to(dtype)

        self.shape, self.rows_TD = shape, drawn(rows, shape.hidden, std=1.0)
        self.squares_T = (self.rows_TD.double().square().sum(1) * 2.0**24).round().long()
        self.router_ED = drawn(-(-shape.count // 16) * 16, shape.hidden)
        self.stack = ExpertStack(
            torch.cat([drawn(1, 2 * shape.inner, shape.hidden) for _ in range(shape.count)]),
            torch.cat([drawn(1, shape.hidden, shape.inner) for _ in range(shape.count)]),
        )
        self.norm_D = torch.ones(shape.hidden, dtype=dtype, device=device)

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

    def routed(self, gates_TF: Tensor, live_T: Tensor | None = None) -> Routes:
        """Experts of rows."""
        return route(gates_TF, live_T, self.shape.count, self.shape.top_k, True)


def cuts(rows: int, tiny: bool) -> tuple[Tiling, ...]:
    """Tilings that are compared for tiles of so many rows."""
    if tiny:
        return Tiling(rows, 64), Tiling(rows, 32)
    narrow = (Tiling(rows, 64, 64, 4, 4), Tiling(rows, 64, 128, 4, 3), Tiling(rows, 128, 64, 4, 4))
    return narrow if rows < 64 else (Tiling(rows, 128, 64, 4, 3), Tiling(rows, 128, 64, 8, 4))


def differing(layer: Layer, counts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Each check with the number of its rows that differ from those of the widest, by our own tiling."""
    every = slice(0, len(layer.rows_TD))
    gates_TF = layer.gates(every)
    expected_TD = layer.mixed(every, gates_TF, None)
    tiny = layer.shape.name == "tiny"

    def differ(got_TD: Tensor, rows: slice) -> int:
        return int((got_TD != expected_TD[rows]).any(1).sum())

    for rows in (16, 32, 64, 128)[: 2 if tiny else 4]:
        for cut in cuts(rows, tiny):
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
    if not INTERPRETED:
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


def micros(layers: Sequence[Layer], rows: int, cut: Tiling | None) -> float:
    """Least microseconds of a layer, of several layers in turn in one graph."""
    part = slice(0, rows)

    def work() -> Tensor:
        return torch.stack([layer.mixed(part, layer.gates(part), cut)[0] for layer in layers])

    _, run = captured(work)
    times: list[float] = []
    for _ in range(LOOPS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(4):
            run()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) * 1e3 / (4 * len(layers)))
    return min(times)


def floor(layers: Sequence[Layer], rows: int) -> tuple[float, float]:
    """Distinct experts of a layer, and microseconds that their bytes or their flops ask for."""
    shape, part = layers[0].shape, slice(0, rows)
    chosen = [layer.routed(layer.gates(part)).ids_TK.unique().numel() for layer in layers]
    distinct = sum(chosen) / len(chosen)
    numbers = 3 * shape.hidden * shape.inner
    return distinct, max(2 * distinct * numbers / READ, 2 * rows * shape.top_k * numbers / FLOPS) * 1e6


def row_of_table(layers: Sequence[Layer], rows: int, until: float) -> str:
    """Time our own tiling and, until the time is over, others."""
    shape = layers[0].shape
    own = tiling(rows * shape.top_k, shape.count)
    distinct, least = floor(layers, rows)
    mine = micros(layers, rows, None)
    best, took = own, mine
    others = dict.fromkeys((*cuts(own.rows, tiny=False), *cuts(min(128, 2 * own.rows), tiny=False)))
    for cut in others:
        if time.monotonic() < until and (found := micros(layers, rows, cut)) < took:
            best, took = cut, found
    named = f"{best.rows}x{best.band}x{best.depth} w{best.warps} s{best.stages}"
    times = f"{least:8.1f} {mine:8.1f} {mine / least:5.2f} {took:8.1f} {took / least:5.2f}"
    return f"{shape.name} {rows:5} {distinct:7.1f} {times} {named}"


def main() -> int:
    """Returns 1 where a bit differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=100.0, help="when other tilings are no longer tried")
    until = time.monotonic() + parser.parse_args().seconds
    device, dtype = ("cpu", torch.float32) if INTERPRETED else ("cuda", torch.bfloat16)
    most, counts = (14, (1, 7)) if INTERPRETED else (max(ROWS), (1, 2, 8, 16, 17, 64, 65, 256))
    differ, table = 0, list[str]()
    if not INTERPRETED:
        keep_order()
    shapes = TINY if INTERPRETED else SHAPES
    with torch.inference_mode():
        for number, shape in enumerate(shapes):
            layers = [Layer(shape, most, device, dtype, seed) for seed in range(1 if INTERPRETED else COPIES)]
            checks = list(differing(layers[0], counts))
            differ += sum(count for _, count in checks)
            for name, count in checks:
                if count:
                    print(f"{shape.name}: {count} rows differ: {name}", flush=True)
            print(f"{shape.name}: {len(checks)} checks of bits, {sum(c for _, c in checks)} rows differ", flush=True)
            now = time.monotonic()
            share = now + max(0.0, until - now) / (len(shapes) - number)
            table += [] if INTERPRETED else [row_of_table(layers, rows, share) for rows in ROWS]
            del layers
    if table:
        print("model    rows experts  floor_us   ours_us ratio  best_us ratio tiling (rows x band x depth)")
        print("\n".join(table))
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
