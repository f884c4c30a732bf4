"""Cuts of the products of Qwen3.5-4B's shape: the one that serves, and others near it, each captured alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.kernels.linear import Normed, kernel
from services.common.kernels.linear.tiling import Tiling, tiling

Row = dict[str, Any]
EPS, COPIES, REPLAYS = 1e-6, 8, 20
WEIGHTS = {
    "into the mixer": (12352, 2560),
    "gate of attention": (4096, 2560),
    "gate and up": (18432, 2560),
    "down": (2560, 9216),
    "head": (248320, 2560),
}
CUTS = (
    Tiling(16, 256, 4, 2), Tiling(32, 128, 4, 2), Tiling(32, 256, 4, 2), Tiling(64, 128, 3), Tiling(64, 128, 4),
    Tiling(64, 128, 6), Tiling(64, 256, 4),
)  # fmt: skip
TINY = {"into the mixer": (152, 32)}


def product_rows(tiny: bool, rows: Sequence[int]) -> Iterator[Row]:
    """One row for each product, count of rows and cut, against the cut that serves."""
    device, dtype = ("cpu", torch.float32) if tiny or not torch.cuda.is_available() else ("cuda", torch.bfloat16)
    for name, (outputs, depth) in (TINY if tiny else WEIGHTS).items():
        copies = 1 if outputs > 100_000 else COPIES
        weights = [torch.randn(outputs, depth, device=device, dtype=dtype).mul_(0.02) for _ in range(copies)]
        for count in rows:
            x_TD = torch.randn(count, depth, device=device, dtype=dtype)
            most = max(16, 1 << (count - 1).bit_length())
            served = tiling(outputs, most)
            base = _us(name, x_TD, weights, served)
            for cut in (served, *(one for one in CUTS if one != served)):
                us = base if cut is served else _us(name, x_TD, weights, cut)
                floor = weights[0].nbytes / 4.2e6
                yield {
                    "step": f"{name} {cut}", "rows": count, "us": round(us, 2), "floor_us": round(floor, 2),
                    "ratio": round(us / base, 3),
                }  # fmt: skip


def _us(name: str, x_TD: Tensor, weights: Sequence[Tensor], cut: Tiling | None) -> float:
    """Microseconds of one product, in a graph of several by weights that no cache holds; 0 where a cut does not fit."""
    normed = Normed(x_TD, torch.ones(len(x_TD), dtype=torch.int64, device=x_TD.device))
    mixed_TF = x_TD.new_ones(len(x_TD), len(weights[0]))

    def run() -> None:
        for weight_FD in weights:
            if name == "gate and up":
                kernel.linear_gated(normed, weight_FD, EPS, cut)
            elif name == "gate of attention":
                kernel.linear_gates(normed, weight_FD, mixed_TF, EPS, cut)
            else:
                kernel.linear_normed(normed, weight_FD, EPS, cut)

    graphs = StepGraphs(x_TD.device)
    try:
        graphs.capture("run", run, ())
    except Exception as error:
        print(f"{name} {cut}: {str(error)[:80]}")
        return 0.0
    times = []
    for _ in range(5):
        _wait(x_TD)
        start = time.perf_counter()
        for _ in range(REPLAYS):
            graphs.replay("run")
        _wait(x_TD)
        times.append((time.perf_counter() - start) / REPLAYS / len(weights) * 1e6)
    return min(times)


def _wait(x_TD: Tensor) -> None:
    if x_TD.is_cuda:
        torch.cuda.synchronize()
