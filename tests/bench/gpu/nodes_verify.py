"""What a verify of trees takes beside one of chains of as many rows, by a target with random weights at warm-up."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from services.target.build_device import build_worker
from services.target.core.width import Tree, Width
from services.target.device.shapes import buckets_of
from services.target.settings import TargetSettings
from tests.bench.gpu.shapes import SHAPES
from tests.support.tiny_checkpoints import write_configs

BANDWIDTH = 4.3e12
"""Bytes a second of an H200."""


def verify_lines(shapes: Sequence[str], rows: Sequence[int], device: str, slots: int = 8) -> Iterator[str]:
    """Yield a line for each shape, bucket and number of rows: microseconds, their ratio, and the floor of weights."""
    for name in shapes:
        costs, weights = _costs(name, rows, device, slots)
        for bucket, width in product(buckets_of(slots), rows):
            chain, tree = costs[bucket, width], costs[bucket, Tree(width)]
            yield (
                f"{name} {bucket} x {width}: chain {chain:.0f} us, nodes {tree:.0f} us, "
                f"ratio {tree / chain:.3f}, weights at 4.3 TB/s {weights / BANDWIDTH * 1e6:.0f} us"
            )


def _costs(name: str, rows: Sequence[int], device: str, slots: int) -> tuple[Mapping[tuple[int, Width], float], int]:
    """Return microseconds of a verify by bucket and width, chains and trees, and the bytes of the target's weights."""
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = write_configs(Path(folder), SHAPES[name])
        settings = TargetSettings(
            model=str(pair.target), drafter_model=str(pair.drafter), drafter_address="unix:/nowhere",
            random_weights=True, device=device, dtype="bfloat16" if device == "cuda" else "float32",
            context_limit=2048, memory_bytes=(40 if device == "cuda" else 1) << 30, adaptive=False, slots=slots,
            widths=(1, *rows), nodes=True,
        )  # fmt: skip
        worker = build_worker(settings, os.getpid())
        try:
            model = worker.runner.pool.model
            return dict(worker.costs()), model.elements * model.dtype.itemsize
        finally:
            worker.close()
