"""Tilings in CUDA C++ that a search times, by product and most rows: those that fill an H200 in whole waves."""

from __future__ import annotations

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import PersistentTiling

SHARED_BYTES, PROCESSOR_BYTES, CTA_BYTES = 232_448, 233_472, 1024
"""Of a CTA at most, of a multiprocessor, and what each CTA takes of that for itself."""
_MOST_STAGES = 12


def fitted(
    kind: Kind, rows: int, band: int, subs: int, share: int = 1, across: int = 1, *, wide: bool = False
) -> PersistentTiling:
    """Return a tiling with as many stages as fit."""
    counts = range(_MOST_STAGES, 1, -1)
    tilings = (PersistentTiling(rows, band, subs, stages, kind, share, across, wide) for stages in counts)
    return next(tiling for tiling in tilings if tiling.shared_bytes <= SHARED_BYTES)


_Cut = tuple[int, ...]
"""Rows, band, 128s of depth in a stage, and where it is not one: CTAs that share lines."""
_QKV: dict[int, tuple[_Cut, ...]] = {
    128: ((128, 48, 1), (128, 48, 2), (64, 96, 2, 2), (64, 96, 1)),
    256: ((128, 96, 1), (128, 96, 2), (256, 48, 1), (64, 192, 1)),
    384: ((128, 192, 1), (192, 96, 1), (128, 144, 1)),
    512: ((128, 192, 1), (256, 96, 1)),
    768: ((256, 192, 1), (192, 192, 1), (128, 192, 1), (192, 144, 1)),
    1024: ((256, 192, 1), (128, 192, 1), (256, 96, 1)),
    2048: ((256, 192, 1), (128, 192, 1), (256, 96, 1)),
}
_ADDED: dict[int, tuple[_Cut, ...]] = {
    128: ((64, 40, 2, 2), (128, 20, 2), (64, 40, 2), (128, 20, 4)),
    256: ((128, 40, 1), (128, 40, 2), (64, 80, 2, 2), (64, 80, 1)),
    512: ((128, 80, 1), (128, 80, 2), (64, 160, 1), (256, 40, 1)),
    768: ((192, 80, 1), (128, 120, 1)),
    1024: ((256, 80, 1), (128, 80, 1)),
    2048: ((256, 80, 1), (128, 80, 1)),
}
_BESIDE: dict[int, tuple[_Cut, ...]] = {
    512: ((128, 80, 1), (64, 160, 1)),
    768: ((128, 160, 1), (128, 120, 1), (192, 80, 1)),
    1024: ((128, 160, 1), (256, 80, 1)),
    2048: ((256, 160, 1), (128, 160, 1)),
}
_GATE_UP: dict[int, tuple[_Cut, ...]] = {
    128: ((128, 76, 1), (64, 76, 2, 2)),
    256: ((256, 76, 1), (128, 76, 1)),
    384: ((128, 76, 1), (192, 76, 1), (128, 114, 1)),
    512: ((256, 76, 1), (128, 100, 1), (128, 76, 1)),
    768: ((128, 120, 1), (128, 112, 1), (192, 100, 1), (256, 76, 1), (256, 86, 1)),
    1024: ((256, 76, 1), (128, 120, 1)),
    2048: ((256, 76, 1), (256, 86, 1), (128, 120, 1)),
}
_HEAD: dict[int, tuple[_Cut, ...]] = {
    128: ((128, 200, 1), (128, 148, 1), (128, 256, 1)),
    192: ((192, 256, 1), (192, 208, 1), (256, 192, 1)),
    256: ((256, 192, 1), (256, 128, 1), (128, 256, 1)),
    384: ((192, 256, 1), (128, 256, 1), (192, 208, 1)),
    512: ((128, 256, 1), (256, 192, 1), (256, 160, 1), (192, 208, 1)),
}
_LISTED = {
    "qkv": (Kind.PLAIN, _QKV), "o": (Kind.ADDED, _ADDED), "down": (Kind.ADDED, _ADDED),
    "gate_up": (Kind.GATED, _GATE_UP), "head": (Kind.PLAIN, _HEAD),
}  # fmt: skip


def tilings(name: str, rows: int) -> tuple[PersistentTiling, ...]:
    """Return the candidates of a product: plain ones among those of a sum have its norm begun by a launch behind."""
    kind, listed = _LISTED[name]
    most = next((most for most in listed if rows <= most), max(listed))
    plain = _BESIDE.get(most, ()) if kind == Kind.ADDED else ()
    return (
        *(fitted(kind, *cut) for cut in listed[most]),
        *(fitted(Kind.PLAIN, *cut) for cut in plain),
    )


def everything() -> tuple[PersistentTiling, ...]:
    """Return all of them once."""
    found = (tilings(name, rows) for name, (_, listed) in _LISTED.items() for rows in listed)
    return tuple(dict.fromkeys(tiling for each in found for tiling in each))
