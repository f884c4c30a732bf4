"""How products by weights of eight bits are divided among CTAs that take tiles."""

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.rule import ruled_cut
from services.common.kernels.linear.persistent.tiling import (
    FEW_ROWS,
    HEAD_LINES,
    STORED_LINES,
    SUB,
    PersistentTiling,
    few_cut,
    measured,
)

MEASURED = measured("int8")
_MOST_ADDED = 256
"""Rows up to which a ruled product adds itself to the stream; of more the sum is a launch of its own."""


def eight_cut(lines: int, depth: int, rows: int, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where Triton serves.

    A table decides of the weights and numbers of rows that it has. A rule cuts others, and all for up to 64 rows.
    """
    if depth % SUB or lines % STORED_LINES:
        return None
    if rows <= FEW_ROWS:
        return few_cut(lines, depth, rows, kind, wide=False)
    found = MEASURED.get((min(lines, HEAD_LINES) if kind == Kind.PLAIN else lines, depth, kind), {})
    if cut := next((cut for most, cut in sorted(found.items()) if rows <= most), None):
        return cut
    ruled = kind in (Kind.PLAIN, Kind.GATED) or (kind == Kind.ADDED and rows <= _MOST_ADDED)
    return ruled_cut(lines, depth, rows, kind, wide=False) if ruled else None
