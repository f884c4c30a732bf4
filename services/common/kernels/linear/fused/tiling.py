"""How products of some hundred rows are divided among CTAs, by measurement."""

from typing import NamedTuple

from services.common.kernels.linear.cuda import Kind

SUB = 64
"""Inputs of a swizzled row: stages are multiples of it deep."""
_NUMBER_BYTES, _BARRIER_BYTES, _ALIGNMENT = 2, 8, 1024
_GROUP_ROWS, _GROUP_THREADS, _WARP_THREADS = 64, 128, 32
_LOADING_ROWS = 128
_SWIZZLED_LINES = 8


class FusedTiling(NamedTuple):
    """Rows and lines of a CTA (of a gated weight in each half), 64s of depth in a stage, stages, CTAs that share lines.

    None of it changes a bit: every CTA adds its whole depth in order.
    """

    rows: int
    band: int
    subs: int
    stages: int
    share: int = 1
    gated: bool = False

    @property
    def lines(self) -> int:
        """Of a matrix instruction."""
        return (1 + self.gated) * -(-self.band // _SWIZZLED_LINES) * _SWIZZLED_LINES

    @property
    def shared_bytes(self) -> int:
        """Of a CTA: stages, two barriers for each, and what aligning the first costs."""
        stage = self.subs * (self.rows + self.lines) * SUB * _NUMBER_BYTES
        return self.stages * (stage + 2 * _BARRIER_BYTES) + _ALIGNMENT

    @property
    def threads(self) -> int:
        """A warpgroup for each 64 rows, and a warp that loads; of four warpgroups one warp does both."""
        return self.rows // _GROUP_ROWS * _GROUP_THREADS + (_WARP_THREADS if self.rows <= _LOADING_ROWS else 0)

    def grid(self, rows: int, outputs: int) -> tuple[int, int]:
        """Return the CTAs; those of a cluster follow one another and have the rows next to one another."""
        bands, parts = -(-outputs // self.band), -(-rows // (self.rows * self.share))
        return bands * self.share, parts


_STEP, _LEAST = 128, 0.85
MEASURED = {
    (2560, 4096, 128): FusedTiling(64, 40, 2, 8, share=2),
    (2560, 9728, 128): FusedTiling(64, 40, 2, 8, share=2),
    (19456, 2560, 128): FusedTiling(128, 76, 1, 6, gated=True),
    (19456, 2560, 256): FusedTiling(256, 76, 1, 4, gated=True),
}
"""The quickest found on an H200, by lines, depth and most rows: those that fill it in one wave."""


def fused_cut(lines: int, depth: int, rows: int, kind: Kind) -> FusedTiling | None:
    """Return how a product is cut; None where the library was quicker, as it is with a tile's rows part empty."""
    most = -(-rows // _STEP) * _STEP
    cut = MEASURED.get((lines, depth, most)) if rows >= _LEAST * most else None
    return cut if cut is not None and kind == (Kind.GATED if cut.gated else Kind.ADDED) else None
