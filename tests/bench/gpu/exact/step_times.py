"""python -m tests.bench.gpu.exact.step_times: medians of captured steps of the tree that it runs in, as one JSON line.

Every batch of replays begins from the same state. Where K/V has no room for all sequences some share a prefix.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from services.common.device import graph
from services.target.core.plan import Chunk
from services.target.device.packing import packed
from services.target.device.shapes import PackShape
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import SHAPES

ROOM, SEGMENT = 256, 64
REPLAYS = ROOM // 16 - 1
"""Replays before the slots go back to the start: all of their tokens may be accepted."""
BATCHES, LEAST_BATCHES = 60, 5


@dataclass(frozen=True)
class Case:
    """One captured step, and what it may cost over the tree before; a bucket of 0 is a prefill of `context` tokens."""

    name: str
    bucket: int
    width: int
    context: int
    bar: float

    def key(self, rig: Rig) -> Hashable:
        """Of the graph that serving replays."""
        return rig.verify_key(self.bucket, self.width, self.context) if self.bucket else ("prefill", *self.pack)

    @property
    def pack(self) -> PackShape:
        """Of a prefill."""
        return PackShape(self.context // SEGMENT, SEGMENT)


CASES = (
    Case("verify 1 x 16 at 512", 1, 16, 512, 1.04),
    Case("verify 8 x 16 at 512", 8, 16, 512, 1.03),
    Case("verify 32 x 16 at 512", 32, 16, 512, 1.03),
    Case("verify 128 x 4 at 512", 128, 4, 512, 1.03),
    Case("verify 128 x 4 at 4,096", 128, 4, 4096, 1.03),
    Case("verify 1 x 16 at 32,000", 1, 16, 32000, 1.05),
    Case("verify 8 x 16 at 8,192", 8, 16, 8192, 1.05),
    Case("plain 1 at 512", 1, 1, 512, 1.04),
    Case("prefill 2,048", 0, 0, 2048, 1.03),
)
TINY_CASES = (
    Case("verify 1 x 16 at 64", 1, 16, 64, 9.0),
    Case("verify 4 x 4 at 128", 4, 4, 128, 9.0),
    Case("prefill 64", 0, 0, 64, 9.0),
)


def cases(tiny: bool) -> tuple[Case, ...]:
    """What is timed."""
    return TINY_CASES if tiny else CASES


def build(tiny: bool, folder: Path) -> Rig:
    """A rig that captures the steps of the cases and few others."""
    every = cases(tiny)
    buckets = tuple(sorted({1, *(case.bucket for case in every if case.bucket)}))
    widths = tuple(sorted({1, *(case.width for case in every if case.bucket)}))
    (prompt,) = (case for case in every if not case.bucket)
    device, dtype, memory = ("cpu", "float32", 1 << 28) if tiny else ("cuda", "bfloat16", 0)
    if not tiny:
        memory = int(0.88 * torch.cuda.mem_get_info()[1])
    limit = max(case.context for case in every) + ROOM
    settings = RigSettings(
        SHAPES["tiny" if tiny else "qwen3-4b"], device, dtype, buckets[-1], widths, limit, memory, prompt.context
    )
    module = "services.target.build_device"
    with (
        mock.patch(f"{module}.buckets_of", return_value=buckets),
        mock.patch(f"{module}.packs_of", return_value=(prompt.pack,)),
        mock.patch("services.target.device.steps.MODES", ("greedy",)),
    ):
        return Rig(settings, folder)


def micros(rig: Rig, case: Case, seconds: float) -> dict[str, Any]:
    """The median of batches of replays, and how many prefixes differ."""
    prefixes = _seat(rig, case)
    times: list[float] = []
    graphs, key = rig.steps.graphs, case.key(rig)
    end = time.perf_counter() + seconds
    while len(times) < LEAST_BATCHES or (time.perf_counter() < end and len(times) < BATCHES):
        _rewind(rig, case)
        rig.synchronise()
        start = time.perf_counter()
        for _ in range(REPLAYS):
            graphs.replay(key)
        rig.synchronise()
        times.append((time.perf_counter() - start) / REPLAYS * 1e6)
    median = statistics.median(times[1:])
    return {"us": round(median, 1), "batches": len(times), "prefixes": prefixes}


def prefix_blocks(rows: int, context: int, blocks: int, block_size: int) -> torch.Tensor:
    """The blocks of each row, [rows, N]: a tail of its own behind whole blocks that some rows share in a small pool.

    Rows that share are half of the rows apart or more, so that none finds in a cache what the other has read.
    """
    whole, tail = context // block_size, -(-(context % block_size + ROOM) // block_size)
    distinct = min(rows, (blocks - rows * tail) // max(whole, 1))
    assert 2 * distinct >= rows, f"{blocks} blocks are too few for {rows} rows of {context} tokens"
    prefixes = torch.arange(distinct * whole, dtype=torch.int32).view(distinct, whole) + 1
    tails = torch.arange(rows * tail, dtype=torch.int32).view(rows, tail) + 1 + distinct * whole
    return torch.cat((prefixes[torch.arange(rows) % distinct], tails), 1)


def _seat(rig: Rig, case: Case) -> int:
    if not case.bucket:
        rig.seat(1, case.context, ROOM)
        ids = tuple(2 + place % 300 for place in range(case.context))
        rig.steps.pack.set(packed([Chunk(0, 0, 0, ids, last=True)], [case.pack])[0])
        return 1
    settings = rig.pool.settings
    table = prefix_blocks(case.bucket, case.context, settings.blocks, settings.block_size)
    rig.place(table, case.context)
    return len(table[:, 0].unique())


def _rewind(rig: Rig, case: Case) -> None:
    if case.bucket:
        rig.reset(case.bucket, case.context)


def main() -> None:
    """Times every case, after the GPU has been kept busy for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.6, help="of each case")
    chosen = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        rig = build(chosen.tiny, Path(folder))
        started = time.perf_counter() - start
        every = cases(chosen.tiny)
        micros(rig, every[0], chosen.seconds)
        found = {case.name: micros(rig, case, chosen.seconds) for case in every}
        rig.worker.close()
    seconds = {"start": round(started, 1), "whole": round(time.perf_counter() - start, 1)}
    print(json.dumps({"services": str(Path(graph.__file__).resolve()), "seconds": seconds, "cases": found}))


if __name__ == "__main__":
    main()
