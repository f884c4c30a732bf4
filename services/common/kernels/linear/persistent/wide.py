"""How products by weights in bfloat16 are divided among CTAs that take tiles: of more than 64 rows by measurement."""

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import (
    FEW_ROWS,
    HEAD_LINES,
    STORED_LINES,
    WIDE_SUB,
    PersistentTiling,
    few_cut,
)

LEAST_ROWS = 17
"""Up to 16 rows of weights that `skinny/` does not take, as a head, stay with Triton."""
MEASURED: dict[tuple[int, int, Kind], dict[int, PersistentTiling | None]] = {
    (6144, 2560, Kind.PLAIN): {128: PersistentTiling(64, 96, 1, 11, share=2, wide=True)},
    (2560, 4096, Kind.ADDED): {
        128: PersistentTiling(64, 40, 2, 8, Kind.ADDED, share=2, wide=True),
        288: None,
        320: PersistentTiling(64, 120, 1, 9, Kind.ADDED, wide=True),
    },
    (2560, 4096, Kind.PLAIN): {
        896: None,
        1024: PersistentTiling(128, 160, 1, 6, share=2, wide=True),
    },
    (19456, 2560, Kind.GATED): {
        128: PersistentTiling(128, 76, 1, 6, Kind.GATED, wide=True),
        192: PersistentTiling(192, 76, 1, 5, Kind.GATED, wide=True),
        256: PersistentTiling(256, 76, 1, 4, Kind.GATED, wide=True),
        288: None,
        384: PersistentTiling(192, 76, 1, 5, Kind.GATED, share=2, wide=True),
        448: None,
        512: PersistentTiling(128, 104, 1, 5, Kind.GATED, share=2, wide=True, later=True),
        640: None,
        768: PersistentTiling(128, 112, 1, 5, Kind.GATED, share=2, wide=True),
        896: None,
        1024: PersistentTiling(128, 120, 1, 4, Kind.GATED, share=2, wide=True, later=True),
        1472: None,
        1536: PersistentTiling(128, 128, 1, 4, Kind.GATED, share=2, wide=True, later=True),
        2048: PersistentTiling(128, 120, 1, 4, Kind.GATED, share=2, wide=True, later=True),
        3072: PersistentTiling(128, 128, 1, 4, Kind.GATED, share=2, wide=True, later=True),
        8192: PersistentTiling(128, 120, 1, 4, Kind.GATED, share=2, wide=True, later=True),
    },
    (18432, 2560, Kind.GATED): {
        96: PersistentTiling(128, 72, 1, 6, Kind.GATED, wide=True),
        1472: None,
        8192: PersistentTiling(256, 96, 1, 4, Kind.GATED, across=2, wide=True),
    },
    (2560, 9728, Kind.ADDED): {128: PersistentTiling(64, 40, 2, 8, Kind.ADDED, share=2, wide=True)},
    (2560, 9216, Kind.ADDED): {96: PersistentTiling(64, 40, 2, 8, Kind.ADDED, share=2, wide=True)},
    (12352, 2560, Kind.PLAIN): {96: PersistentTiling(128, 96, 1, 8, wide=True)},
    (HEAD_LINES, 2560, Kind.PLAIN): {
        128: PersistentTiling(128, 128, 1, 7, wide=True),
        192: PersistentTiling(192, 208, 1, 4, wide=True),
        256: PersistentTiling(128, 256, 1, 4, share=2, wide=True),
        384: PersistentTiling(192, 256, 1, 4, share=2, wide=True),
        512: PersistentTiling(256, 192, 1, 4, across=2, wide=True),
    },
    (2560, 9728, Kind.PLAIN): {
        896: None,
        1024: PersistentTiling(128, 160, 1, 6, across=2, wide=True),
    },
}
"""The quickest found on an H200, of 512 rows on H100s, by lines, depth and what follows, for up to so many rows.

None where others were.
"""


def wide_cut(lines: int, depth: int, rows: int, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where none was measured, or the library was quicker."""
    if rows < LEAST_ROWS or lines % STORED_LINES or depth % WIDE_SUB:
        return None
    if rows <= FEW_ROWS:
        return few_cut(lines, depth, rows, kind, wide=True) if kind != Kind.GATES else None
    cuts = MEASURED.get((min(lines, HEAD_LINES), depth, kind), {})
    return next((cut for most, cut in sorted(cuts.items()) if rows <= most), None)
