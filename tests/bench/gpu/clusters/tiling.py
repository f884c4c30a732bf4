"""How 128 rows by a weight are cut into CTAs, and the bytes that each way moves.

A sum may not leave its CTA, so a multiprocessor takes in (rows + lines) * depth * 2 bytes whatever the cluster: the
nearer rows and lines are to each other, the less. Multicast only saves what the second cache hands out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ROWS = 128
SUB = 64
"""Numbers of a swizzled row: the copy engine's boxes and the kernel's stages are multiples of it deep."""
WEIGHTS = {"o": (2560, 4096), "down": (2560, 9728), "gate_up": (19456, 2560), "qkv": (6144, 2560)}
"""Outputs and depth of Qwen3-4B's weights."""
MULTIPROCESSORS = 132
READ_BYTES_A_US = 4.5e6
"""What an H200's memory hands out at best."""
INGEST_BYTES_A_US = 64 * 1.85e3
"""What a multiprocessor takes in at best: 64 bytes a cycle at the clock of a GPU at work."""
_PORTABLE_CLUSTER = 8
_SHARED_BYTES = 232_448
_BARRIER_BYTES = 8


@dataclass(frozen=True)
class Tiling:
    """A CTA's rows and lines of the weight, 64s of depth in a stage, stages, and the CTAs that share either."""

    rows: int
    lines: int
    subs: int
    stages: int
    share_x: int = 1
    share_w: int = 1

    @property
    def name(self) -> str:
        """Short, for tables and folders."""
        return f"{self.rows}x{self.lines}_k{self.subs * SUB}x{self.stages}_c{self.share_x}x{self.share_w}"

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.share_x * self.share_w

    @property
    def portable(self) -> bool:
        """Whether every GPU of the architecture must take the cluster."""
        return self.cluster <= _PORTABLE_CLUSTER

    @property
    def threads(self) -> int:
        """A warpgroup for each 64 rows, and a warp that loads."""
        return self.rows // 64 * 128 + 32

    @property
    def shared_bytes(self) -> int:
        """Of a CTA: stages, two barriers for each, and what aligning the first costs."""
        return self.stages * (self.subs * (self.rows + self.lines) * SUB * 2 + 2 * _BARRIER_BYTES) + 1024

    def grid(self, outputs: int) -> tuple[int, int]:
        """CTAs along the weight, those of a cluster together, and along the rows that no cluster holds whole."""
        across = math.ceil(outputs / (self.lines * self.share_x)) * self.share_x
        return across * self.share_w, ROWS // self.rows // self.share_w

    def ctas(self, outputs: int) -> int:
        """All of them."""
        return math.prod(self.grid(outputs))

    def fits(self, outputs: int, depth: int) -> bool:
        """Whether the kernel can do it in one wave of CTAs."""
        return (
            self.shared_bytes <= _SHARED_BYTES
            and self.ctas(outputs) <= MULTIPROCESSORS
            and depth % (self.subs * SUB) == 0
            and self.rows % (8 * self.share_x) == 0
            and self.subs % self.share_w == 0
            and self.share_w in (1, ROWS // self.rows)
        )

    def ingest_bytes(self, depth: int) -> int:
        """What a multiprocessor takes in."""
        return 2 * depth * (self.rows + self.lines)

    def cache_bytes(self, outputs: int, depth: int) -> int:
        """What the second cache hands out to all CTAs."""
        return self.ctas(outputs) * 2 * depth * self.rows // self.share_x + (
            self.ctas(outputs) * 2 * depth * self.lines // self.share_w
        )

    def ingest_us(self, depth: int) -> float:
        """The time that taking in needs at least."""
        return self.ingest_bytes(depth) / INGEST_BYTES_A_US


_NARROW = (
    Tiling(64, 40, 2, 8, 4, 2), Tiling(64, 40, 2, 8, 2, 2), Tiling(64, 40, 2, 8, 8, 2), Tiling(64, 40, 2, 8, 1, 2),
    Tiling(64, 40, 4, 4, 4, 2), Tiling(64, 40, 4, 4, 2, 2), Tiling(64, 40, 1, 16, 4, 1), Tiling(64, 40, 2, 8, 8, 1),
    Tiling(64, 40, 2, 8), Tiling(128, 24, 2, 5, 4, 1),
)  # fmt: skip
TILINGS: dict[str, tuple[Tiling, ...]] = {
    "o": _NARROW,
    "down": _NARROW,
    "gate_up": (
        Tiling(128, 152, 1, 6, 2), Tiling(128, 152, 1, 6, 4), Tiling(128, 152, 1, 6, 8), Tiling(128, 152, 2, 3, 2),
        Tiling(128, 152, 2, 3, 4), Tiling(128, 152, 1, 6),
    ),
    "qkv": (
        Tiling(128, 48, 2, 5, 2), Tiling(128, 48, 2, 5, 4), Tiling(128, 48, 1, 10, 4), Tiling(64, 96, 2, 5, 4, 2),
        Tiling(64, 96, 2, 5, 2, 2), Tiling(128, 48, 2, 5),
    ),
}  # fmt: skip
"""Those that fill the GPU in one wave: 128 CTAs but for the 108 of 24 lines."""


def floor_us(outputs: int, depth: int) -> float:
    """Return the time that reading weight and rows and writing the result takes at least."""
    return 2 * (outputs * depth + ROWS * (outputs + depth)) / READ_BYTES_A_US
