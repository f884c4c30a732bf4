"""How products of more than 64 rows by weights in bfloat16 are divided among CTAs, by measurement."""

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.eight.tiling import LEAST_ROWS, STORED_LINES, EightTiling

MEASURED: dict[tuple[int, int, Kind], dict[int, EightTiling | None]] = {}
"""The quickest found on an H200, by lines, depth and what follows, for up to so many rows; None where others were."""


def wide_cut(lines: int, depth: int, rows: int, kind: Kind) -> EightTiling | None:
    """Return how a product is cut; None where none was measured, or the library or `fused/` was quicker."""
    if rows < LEAST_ROWS or lines % STORED_LINES:
        return None
    return next((cut for most, cut in sorted(MEASURED.get((lines, depth, kind), {}).items()) if rows <= most), None)
