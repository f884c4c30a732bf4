"""How products of more than 64 rows by weights in bfloat16 are divided among CTAs, by measurement."""

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import LEAST_ROWS, STORED_LINES, PersistentTiling

MEASURED: dict[tuple[int, int, Kind], dict[int, PersistentTiling | None]] = {
    (2560, 4096, Kind.ADDED): {
        288: None,
        320: PersistentTiling(64, 120, 1, 9, Kind.ADDED, wide=True),
        448: None,
        512: PersistentTiling(128, 80, 1, 8, Kind.ADDED, share=2, wide=True),
    },
    (2560, 4096, Kind.PLAIN): {
        896: None,
        1024: PersistentTiling(128, 160, 1, 6, share=2, wide=True),
    },
    (19456, 2560, Kind.GATED): {
        128: None,
        192: PersistentTiling(192, 76, 1, 5, Kind.GATED, wide=True),
        288: None,
        384: PersistentTiling(192, 76, 1, 5, Kind.GATED, share=2, wide=True),
        448: None,
        512: PersistentTiling(256, 76, 1, 4, Kind.GATED, wide=True),
        640: None,
        768: PersistentTiling(128, 112, 1, 5, Kind.GATED, share=2, wide=True),
        896: None,
        1024: PersistentTiling(128, 120, 1, 4, Kind.GATED, across=2, wide=True),
        1472: None,
        8192: PersistentTiling(256, 96, 1, 4, Kind.GATED, across=2, wide=True),
    },
    (18432, 2560, Kind.GATED): {
        1472: None,
        8192: PersistentTiling(256, 96, 1, 4, Kind.GATED, across=2, wide=True),
    },
    (2560, 9728, Kind.PLAIN): {
        896: None,
        1024: PersistentTiling(128, 160, 1, 6, across=2, wide=True),
    },
}
"""The quickest found on an H200, by lines, depth and what follows, for up to so many rows; None where others were."""


def wide_cut(lines: int, depth: int, rows: int, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where none was measured, or the library or `fused/` was quicker."""
    if rows < LEAST_ROWS or lines % STORED_LINES:
        return None
    return next((cut for most, cut in sorted(MEASURED.get((lines, depth, kind), {}).items()) if rows <= most), None)
