"""How products by weights in bfloat16 are divided among CTAs that take tiles: of more than 64 rows by measurement."""

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import (
    FEW_ROWS,
    HEAD_LINES,
    STORED_LINES,
    WIDE_SUB,
    PersistentTiling,
    few_cut,
    measured,
)

LEAST_ROWS = 17
"""Up to 16 rows of weights that `skinny/` does not take, as a head, stay with Triton."""
MEASURED = measured("bf16")


def wide_cut(lines: int, depth: int, rows: int, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where none was measured, or the library was quicker."""
    if rows < LEAST_ROWS or lines % STORED_LINES or depth % WIDE_SUB:
        return None
    if rows <= FEW_ROWS:
        return few_cut(lines, depth, rows, kind, wide=True) if kind != Kind.GATES else None
    cuts = MEASURED.get((min(lines, HEAD_LINES), depth, kind), {})
    return next((cut for most, cut in sorted(cuts.items()) if rows <= most), None)
