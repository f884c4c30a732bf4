"""How products by weights in bfloat16 are divided among CTAs that take tiles: of more than 64 rows by measurement."""

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.rule import ruled_cut
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
_HEAD = 512
_MOST_RULED = {Kind.PLAIN: 128, Kind.ADDED: 128, Kind.GATED: 192}
"""Rows up to which tiles of measured weights mostly beat the library, by what follows; of heads `_HEAD`."""
_SMALL, _LINES, _SMALL_ROWS = 2 << 20, 512, (128, 192, 256, 384, 512, 768, 1024)
"""Of a small weight: numbers that it has less than, lines that it has at least, and rows. The library's product and the
launch behind it take longer to begin than to compute. Rows in between are cut as more of them: fewer kernels."""


def wide_cut(lines: int, depth: int, rows: int, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where the library was measured to be quicker, or is likely to be.

    A table decides of the weights that it has. A rule cuts others, and all weights for up to 64 rows.
    """
    if rows < LEAST_ROWS or lines % STORED_LINES or depth % WIDE_SUB:
        return None
    if rows <= FEW_ROWS:
        return few_cut(lines, depth, rows, kind, wide=True) if kind != Kind.GATES else None
    # A head of any size is cut as one of the least; what is gated is no head.
    cuts = MEASURED.get((lines if kind == Kind.GATED else min(lines, HEAD_LINES), depth, kind))
    if cuts is None:
        return _ruled(lines, depth, rows, kind)
    return next((cut for most, cut in sorted(cuts.items()) if rows <= most), None)


def _ruled(lines: int, depth: int, rows: int, kind: Kind) -> PersistentTiling | None:
    most = _HEAD if lines > HEAD_LINES and kind == Kind.PLAIN else _MOST_RULED.get(kind, 0)
    if rows > most and kind in _MOST_RULED and lines >= _LINES and lines * depth < _SMALL:
        most = _SMALL_ROWS[-1]
        rows = next((step for step in _SMALL_ROWS if rows <= step), rows)
    return ruled_cut(lines, depth, rows, kind) if rows <= most else None
