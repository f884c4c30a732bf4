"""What a verify of trees takes beside one of chains of as many rows, and what choosing nodes takes.

The targets have random weights, two buckets and greedy steps alone, and are timed at warm-up.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from unittest import mock

import torch

from services.common.kernels.choose_nodes import choose_nodes
from services.common.model.drafters.nodes import CANDIDATES
from services.target.build_device import build_worker
from services.target.core.width import Tree, Width
from services.target.settings import TargetSettings
from tests.bench.gpu.shapes import SHAPES
from tests.support.tiny_checkpoints import write_configs

BANDWIDTH = 4.3e12
"""Bytes a second of an H200."""
BUCKETS, POSITIONS = (1, 8), 15
REPEATS = 200


def choice_lines(device: str) -> Iterator[str]:
    """Yield a line for each number of sequences and form of scores: microseconds in which 15 nodes are chosen."""
    for batch, befores in product((1, 8, 32), (1, CANDIDATES)):
        ids = torch.randint(1000, (batch, POSITIONS, CANDIDATES), device=device)
        scores = torch.randn(batch, POSITIONS, befores, CANDIDATES, device=device).log_softmax(-1)
        yield f"choose 15 nodes of {batch} sequences, {befores} before: {_micros(ids, scores, device):.1f} us"


def _micros(ids: torch.Tensor, scores: torch.Tensor, device: str) -> float:
    """Of one choice among many in a row; in a graph on a GPU, where a launch takes the host longer than the work."""

    def chosen(repeats: int) -> None:
        for _ in range(repeats):
            choose_nodes(ids, scores, POSITIONS)

    chosen(1)
    if device != "cuda":
        start = time.perf_counter()
        chosen(2)
        return (time.perf_counter() - start) / 2 * 1e6
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chosen(REPEATS)
    graph.replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / REPEATS * 1e6


def verify_lines(shapes: Sequence[str], rows: Sequence[int], device: str) -> Iterator[str]:
    """Yield a line for each shape, bucket and number of rows: microseconds, their ratio, and the floor of weights."""
    for name in shapes:
        costs, weights = _costs(name, rows, device)
        for bucket, width in product(BUCKETS, rows):
            chain, tree = costs[bucket, width], costs[bucket, Tree(width)]
            yield (
                f"{name} {bucket} x {width}: chain {chain:.0f} us, nodes {tree:.0f} us, "
                f"ratio {tree / chain:.3f}, weights at 4.3 TB/s {weights / BANDWIDTH * 1e6:.0f} us"
            )


def _costs(name: str, rows: Sequence[int], device: str) -> tuple[Mapping[tuple[int, Width], float], int]:
    """Return microseconds of a verify by bucket and width, chains and trees, and the bytes of the target's weights."""
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = write_configs(Path(folder), SHAPES[name])
        settings = TargetSettings(
            model=str(pair.target), drafter_model=str(pair.drafter), drafter_address="unix:/nowhere",
            random_weights=True, device=device, dtype="bfloat16" if device == "cuda" else "float32",
            context_limit=2048, memory_bytes=(40 if device == "cuda" else 1) << 30, adaptive=False, slots=BUCKETS[-1],
            widths=(1, *rows), nodes=True,
        )  # fmt: skip
        with (
            mock.patch("services.target.build_device.buckets_of", return_value=BUCKETS),
            mock.patch("services.target.device.steps.MODES", ("greedy",)),
        ):
            worker = build_worker(settings, os.getpid())
        try:
            model = worker.runner.pool.model
            return dict(worker.costs()), model.elements * model.dtype.itemsize
        finally:
            worker.close()
