"""Stamps of a clock that both processes share: the GPU's own, or the host's where steps run on a CPU."""

# mypy: allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import json
import os
import time
from enum import IntEnum
from pathlib import Path

import torch
import triton
import triton.language as tl

FOLDER = "BENCH_STAMPS"
"""Names the folder in which each process leaves its stamps when it ends."""
_ROOM = 1 << 19
_BUCKETS, _WIDTHS = 10_000, 100


class Point(IntEnum):
    """What a step has just done."""

    DRAFTS_READ = 1
    FORWARD = 2
    HEAD = 3
    COMMITTED = 4
    CONTEXT_WRITTEN = 5
    PUBLISHED = 6
    ASKED = 7
    DRAFTED = 8
    DRAFTS_WRITTEN = 9


Stamp = tuple[int, int, Point, int]
"""Bucket, width, point and nanoseconds."""


class Stamps:
    """Those of one process. `step` is the shape of the step that is recorded; outside of one nothing is stamped."""

    def __init__(self) -> None:
        self.step: tuple[int, int] | None = None
        self._on_host: list[tuple[int, int]] = []
        self._on_device: torch.Tensor | None = None

    def at(self, point: Point) -> None:
        """Notes the time at which the device gets here."""
        if self.step is None:
            return
        bucket, width = self.step
        number = bucket * _BUCKETS + width * _WIDTHS + point
        if not torch.cuda.is_available():
            self._on_host.append((number, time.monotonic_ns()))
            return
        if self._on_device is None:
            self._on_device = torch.zeros(2 + 2 * _ROOM, dtype=torch.int64, device="cuda")
        _stamp_kernel[(1,)](self._on_device, number, ROOM=_ROOM, num_warps=1)

    def leave(self, name: str) -> None:
        """Writes them to a file of the folder that the environment names."""
        (Path(os.environ[FOLDER]) / f"{name}.json").write_text(json.dumps(self._taken()))

    def _taken(self) -> list[tuple[int, int]]:
        if self._on_device is None:
            return self._on_host
        taken = min(int(self._on_device[0]), _ROOM)
        pairs: list[tuple[int, int]] = self._on_device[2 : 2 + 2 * taken].view(-1, 2).tolist()
        return pairs


def read(folder: Path) -> list[Stamp]:
    """All stamps of a folder in the order of their time."""
    found = [pair for file in sorted(folder.glob("*.json")) for pair in json.loads(file.read_text())]
    stamps = [
        (number // _BUCKETS, number % _BUCKETS // _WIDTHS, Point(number % _WIDTHS), nanoseconds)
        for number, nanoseconds in found
    ]
    return sorted(stamps, key=lambda stamp: stamp[3])


@triton.jit(do_not_specialize=["number"])
def _stamp_kernel(stamps_ptr, number, ROOM: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    now = tl.extra.cuda.globaltimer()
    place = tl.atomic_add(stamps_ptr, 1)
    if place < ROOM:
        tl.store(stamps_ptr + 2 + 2 * place, number.to(tl.int64))
        tl.store(stamps_ptr + 3 + 2 * place, now)
