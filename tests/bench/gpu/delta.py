"""python -m tests.bench.gpu.delta: Gated DeltaNet of all layers in one captured graph, compared and timed.

First rows are compared with the token loop in float64 and between cuts, by their bits; then rounds and chunks are timed
by cut. A round without one goes through the kernel of its own. A table, then one line of JSON; exits with 1 when
anything differs. Kernels are compiled side by side before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.gated_delta import BLOCK, DeltaSpan
from services.common.kernels.gated_delta.cut import Cut, cut_rows
from services.common.kernels.gated_delta.kernel import delta_rows
from tests.bench.gpu.results import circumstances, tell
from tests.kernels.gpu.delta_layer import EPS, QWEN, TINY, Layer, Shape, away
from tests.kernels.gpu.devices import DEVICE, INTERPRETED

Row = dict[str, Any]
LAYERS, SETS = 24, 4
"""Of Qwen3.5-4B that are recurrent; sets of slots in turn, so that no state is left in the cache by the last replay."""
HIDDEN, INNER, ATTENTION_LAYERS = 2560, 9216, 8
PRODUCTS = ((12352, HIDDEN), (HIDDEN, 4096), (2 * INNER, HIDDEN), (HIDDEN, INNER))
ATTENTION_PRODUCTS = ((10240, HIDDEN), *PRODUCTS[1:])
CUTS = (Cut(128, 8, 1), Cut(64, 4, 1), Cut(64, 4, 2), Cut(64, 4, 3))
ROUND_CUTS = (None, *CUTS)
ACCEPTED = {1: 1, 8: 5, 16: 6}
"""Rows of the round before that stayed, by width."""
COMPILE_S = 60.0
BARS = {(1, 1): 140.0, (1, 8): 180.0, (1, 16): 200.0}


class Told(list[Row]):
    """Rows that are printed as they come: a run that is cut off has told what it found."""

    def append(self, row: Row) -> None:
        """Print it, too."""
        tell(row)
        super().append(row)


def main() -> int:
    """Compares, times, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", default="", help="file of the results")
    parser.add_argument("--cuts", action="store_true", help="time every cut, not the one that serves alone")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--seconds", type=float, default=30.0, help="cuts that come later are not timed")
    chosen = parser.parse_args()
    until = time.monotonic() + chosen.seconds
    shape, dtype = (TINY, torch.float32) if INTERPRETED else (QWEN, torch.bfloat16)
    if not INTERPRETED:
        compile_cuts(shape, dtype)
    rows, sound = compared(shape, dtype)
    if not chosen.check and not INTERPRETED:
        rows += timed(shape, dtype, chosen.cuts, until)
    told = {"bench": "gpu delta", **circumstances("qwen3.5-4b", "tests.bench.gpu.delta"), "rows": rows}
    if chosen.save:
        Path(chosen.save).write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
    return 0 if sound else 1


def compile_cuts(shape: Shape, dtype: torch.dtype) -> None:
    """Each cut in a process of its own, which leaves kernels in Triton's cache; one that fails will fail again."""
    started, spawn = time.monotonic(), multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=try_cut, args=(shape, dtype, cut), daemon=True) for cut in CUTS]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, started + COMPILE_S - time.monotonic()))
        if worker.is_alive():
            worker.terminate()
    tell({"step": "compile", "seconds": round(time.monotonic() - started, 1)})


def try_cut(shape: Shape, dtype: torch.dtype, cut: Cut) -> None:
    """Runs a short text by it, to compile what it needs."""
    torch.set_num_threads(1)
    layer = Layer(shape, dtype, 2)
    with contextlib.suppress(Exception):
        in_pieces(layer, layer.rows(150), cut, layer.state_SHKV[0])


def attempted(row: Row, measured: Callable[[], Row], until: float) -> Row:
    """The row with what is measured, or why it is not."""
    if time.monotonic() > until:
        return row | {"failed": "no time is left"}
    try:
        return row | measured()
    except Exception as error:  # a cut that does not fit must not end the run
        return row | {"failed": repr(error)[:200]}


def compared(shape: Shape, dtype: torch.dtype) -> tuple[list[Row], bool]:
    """A text in one chunk, and in chunks and rounds of all widths, by every cut."""
    count = 44 if INTERPRETED else 150
    layer = Layer(shape, dtype, 2)
    rows_TF = layer.rows(count)
    exact_TF, states_THKV = layer.expected(rows_TF)
    whole_TF = layer.run([1], [0], rows_TF[None], [count])[0]
    folded = count // BLOCK * BLOCK
    state_HKV = layer.state_SHKV[1].clone()
    off, state_off = away(whole_TF, exact_TF), away(state_HKV, states_THKV[folded - 1])
    found = Told()
    found.append({"step": "token loop", "read_off": off, "state_off": state_off})
    sound = state_off <= 1e-5 and off <= (1e-5 if dtype == torch.float32 else 1e-2)
    for wide in ROUND_CUTS:
        cut = wide._replace(columns=wide.columns // 4) if wide and INTERPRETED else wide
        try:
            read_TF = in_pieces(Layer(shape, dtype, 2), rows_TF, cut, state_HKV)
        except Exception as error:  # a cut that does not fit is a finding
            found.append({"step": "cut", "cut": str(cut), "failed": repr(error)[:200]})
            sound = False
            continue
        differ = int((read_TF.view(torch.uint8) != whole_TF.contiguous().view(torch.uint8)).sum())
        found.append({"step": "cut", "cut": str(cut), "differ": differ})
        sound = sound and differ == 0
    return found, sound


def in_pieces(layer: Layer, rows_TF: Tensor, cut: Cut | None, state_HKV: Tensor) -> Tensor:
    """A chunk and rounds of each width in turn; NaN where the state at the end differs."""
    widest, at, read = layer.shape.widest, 0, []
    first = len(rows_TF) // 2
    read.append(layer.run([1], [0], rows_TF[None, :first], [first], cut=cut)[0])
    at = first
    widths = cycle((1, 3, widest, 1, widest // 2, widest))
    while width := min(next(widths), len(rows_TF) - at):
        # Rows behind those that stay are rejected: what they hold must not matter.
        span_WF = F.pad(rows_TF[at : at + width], (0, 0, 0, min(widest - width, 2)), value=float("nan"))
        read.append(layer.run([1], [at], span_WF[None], cut=cut)[0][:width])
        at += width
    layer.run([1], [at], rows_TF[None, :1], cut=cut)
    if not torch.equal(layer.state_SHKV[1], state_HKV):
        read[-1] = read[-1] * float("nan")
    return torch.cat(read).contiguous()


class Stack:
    """Layers with slots for some sequences, in several sets that replays use in turn."""

    def __init__(self, shape: Shape, dtype: torch.dtype, sequences: int, width: int) -> None:
        self.shape, self.sequences, self.width = shape, sequences, width
        sets = SETS if sequences <= 8 else 1
        self._layer = Layer(shape, dtype, 1)
        size = (LAYERS, sets * sequences, shape.heads, shape.k_dim, shape.v_dim)
        self._states_LSHKV = torch.randn(size, device=DEVICE).mul_(0.1)
        rings = (LAYERS, sets * sequences, self._layer.ring, shape.kept)
        self._rings_LSRC = torch.randn(rings, device=DEVICE).to(dtype)
        self._into_TF = self._layer.rows(sequences * width)
        self._norm_V = self._layer.norm_V.to(DEVICE)
        self._out_TF = self._into_TF.new_empty((len(self._into_TF), shape.heads * shape.v_dim))
        self._slots = [torch.arange(sequences, device=DEVICE) + sequences * index for index in range(sets)]
        self._lengths_B = torch.zeros(sequences, dtype=torch.int64, device=DEVICE)
        self._folded_B, self._valid_B = torch.zeros_like(self._lengths_B), torch.zeros_like(self._lengths_B)

    def captured(self, cut: Cut | None, prompt: bool) -> torch.cuda.CUDAGraph:
        """A graph of all layers, for each set of slots."""
        self._run(cut, prompt)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run(cut, prompt)
        return graph

    def place(self, lengths: Sequence[int], pending: Sequence[int]) -> None:
        """Where sequences are, and how much of each is not folded yet."""
        folded = [length - rows for length, rows in zip(lengths, pending, strict=True)]
        self._lengths_B.copy_(torch.tensor(lengths))
        self._folded_B.copy_(torch.tensor(folded))
        self._valid_B.fill_(self.width)
        torch.cuda.synchronize()

    def _run(self, cut: Cut | None, prompt: bool) -> None:
        layer = self._layer
        for slots_B in self._slots:
            span = DeltaSpan(
                slots_B, self._lengths_B, self._folded_B, self._valid_B if prompt else None, self.width, layer.ring,
                self.shape.taps,
            )  # fmt: skip
            for state_SHKV, ring_SRC in zip(self._states_LSHKV, self._rings_LSRC, strict=True):
                delta_rows(
                    self._into_TF, layer.constants, self._norm_V, EPS, span, state_SHKV, ring_SRC, self._out_TF, cut
                )

    def micros(self, graph: torch.cuda.CUDAGraph, repeats: int = 8) -> float:
        """Of one forward's layers."""
        return micros(graph.replay, repeats) / len(self._slots)


def micros(call: Callable[[], object], repeats: int) -> float:
    """Microseconds of a call, the median of five times so many."""
    call()
    times: list[float] = []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / repeats * 1e3)
    return statistics.median(times)


def timed(shape: Shape, dtype: torch.dtype, every: bool, until: float) -> list[Row]:
    """Rounds of one and of 32 sequences, then chunks."""
    numbers = torch.randn(1 << 28, device=DEVICE)
    bandwidth = numbers.nbytes / micros(numbers.sum, 4)
    rows = Told()
    rows.append({"step": "read", "tb_s": round(bandwidth / 1e6, 3)})
    for sequences, width in ((1, 1), (1, 8), (1, 16), (32, 1), (32, 8)):
        stack = Stack(shape, dtype, sequences, width)
        state_bytes = LAYERS * sequences * shape.heads * shape.k_dim * shape.v_dim * 4
        floor = state_bytes * (1 + ACCEPTED[width] / BLOCK) / bandwidth
        told: Row = {"step": "round", "sequences": sequences, "width": width, "floor_us": round(floor, 1)}
        told["bar"] = BARS.get((sequences, width), round(2 * floor, 1))
        for cut in ROUND_CUTS if every else (None, cut_rows(sequences, shape.heads, shape.v_dim, True)):
            rows.append(attempted(told | {"cut": str(cut)}, partial(round_us, stack, cut), until))
    for sequences, width, length in ((1, 2048, 0), (8, 512, 0), (1, 2048, 6144)):
        stack, products = Stack(shape, dtype, sequences, width), products_us(sequences * width, dtype)
        told = {"step": "chunk", "sequences": sequences, "width": width, "length": length}
        for cut in CUTS if every else (cut_rows(sequences, shape.heads, shape.v_dim, False),):
            measured = partial(chunk_us, stack, cut, length, products)
            rows.append(attempted(told | {"cut": str(cut)}, measured, until))
    return rows


def round_us(stack: Stack, cut: Cut | None) -> Row:
    """The mean over all places in a block, and the worst."""
    sequences, accepted = stack.sequences, ACCEPTED[stack.width]
    stack.place([1024] * sequences, [16] * sequences)
    graph = stack.captured(cut, False)
    times = []
    for shift in range(0, BLOCK, 1 if sequences == 1 else 4):
        before = [1024 + (shift + index) % BLOCK for index in range(sequences)]
        stack.place([at + accepted for at in before], [at % BLOCK + accepted for at in before])
        times.append(stack.micros(graph, 4))
    return {"us": round(statistics.mean(times), 1), "most": round(max(times), 1)}


def chunk_us(stack: Stack, cut: Cut, length: int, products: float) -> Row:
    """Beside the products of the whole model's layers at so many rows."""
    stack.place([length] * stack.sequences, [0] * stack.sequences)
    took = stack.micros(stack.captured(cut, True), 1)
    return {"us": round(took, 1), "products_us": round(products, 1), "share": round(took / products, 3)}


def products_us(count: int, dtype: torch.dtype) -> float:
    """Of a prompt's rows in all 32 layers of Qwen3.5-4B."""
    total = 0.0
    for sizes, layers in ((PRODUCTS, LAYERS), (ATTENTION_PRODUCTS, ATTENTION_LAYERS)):
        for lines, depth in sizes:
            weight_FD = torch.randn(lines, depth, device=DEVICE).mul_(0.02).to(dtype)
            rows_TD = torch.randn(count, depth, device=DEVICE).to(dtype)
            total += layers * micros(partial(F.linear, rows_TD, weight_FD), 4)
    return total


if __name__ == "__main__":
    sys.exit(main())
