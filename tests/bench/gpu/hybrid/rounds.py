"""Texts of a hybrid of Qwen3.5-4B's shape: speculation on and off, alone and together, hits, preemption, ahead."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import torch

from tests.bench.gpu.exact.loads import LoadSizes
from tests.bench.gpu.exact.report import Row
from tests.bench.gpu.exact.rounds import Plan, plan_rows
from tests.bench.gpu.exact.rounds_rig import Cell, RigShape
from tests.bench.gpu.shapes import DELTA_4B, QWEN3_5_4B
from tests.support.tiny_checkpoints import TinyShape

FAMILY = "qwen3_5_text"
FULL = Plan(
    RigShape(QWEN3_5_4B, "cuda", "bfloat16", 32, (1, 4, 8, 16), (512, 2048), 3072, FAMILY, DELTA_4B),
    LoadSizes(96, ((1, 40), (200, 800), (30, 300), (1500, 2600))),
    {1: 4, 32: 48},
    (512, 2048),
    kv_requests=8,
    kv_tokens=300,
)
CELLS = (
    Cell(16, 1, 2048),
    Cell(16, 32, 512),
    Cell(4, 32, 2048, hit=True),
    Cell(8, 32, 512, preemption=True),
    Cell(16, 32, 2048, hit=True, preemption=True, ahead=True),
    Cell(1, 32, 512, hit=True, ahead=True),
    Cell(8, 32, 2048, ahead=True, turns=True),
)
BUCKETS = (1, 32)
TINY = Plan(
    RigShape(TinyShape(block_size=16), "cpu", "float64", 4, (1, 4), (8, 32), 128, FAMILY),
    LoadSizes(12, ((20, 60), (1, 6), (20, 60))),
    {1: 2, 4: 6},
    (8, 32),
    kv_requests=2,
    kv_tokens=20,
)
TINY_CELLS = (Cell(4, 4, 8), Cell(4, 4, 32, hit=True), Cell(1, 4, 8, preemption=True), Cell(4, 4, 32, turns=True))


def round_rows(tiny: bool, exact: str) -> Iterator[Row]:
    """One row for each cell, for a sample that is run alone, and for K/V; the last is of all texts."""
    if tiny or not torch.cuda.is_available():
        yield from plan_rows(TINY, TINY_CELLS, exact)
        return
    # Two buckets are captured in a third of the time of six.
    with mock.patch("services.target.build_device.buckets_of", return_value=BUCKETS):
        yield from plan_rows(FULL, CELLS, exact)
