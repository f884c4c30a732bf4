"""Tilings of products in bfloat16 that a search times, by product and most rows: they fill an H200 in whole waves."""

from __future__ import annotations

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from tests.bench.gpu.int8.eight import fitted

_Cut = tuple[int, ...]
"""Rows, band, 64s of depth in a stage, CTAs that share lines, or rows."""
_QKV: dict[int, tuple[_Cut, ...]] = {
    128: ((128, 48, 1), (128, 48, 2, 1, 2), (64, 96, 1, 2), (64, 96, 1, 1, 2)),
    192: ((192, 48, 1, 1, 2), (192, 48, 1, 1, 4), (64, 144, 1), (128, 96, 1, 2)),
    256: (
        (128, 96, 1), (128, 96, 1, 2), (128, 96, 1, 1, 2), (128, 96, 2, 1, 2), (64, 192, 1, 4),
        (256, 48, 1, 1, 2),
    ),
    384: ((128, 144, 1), (192, 96, 1), (192, 96, 1, 1, 2), (192, 96, 1, 2)),
    512: (
        (128, 192, 1), (128, 192, 1, 2), (128, 192, 1, 1, 2), (128, 192, 1, 4), (256, 96, 1),
        (256, 96, 1, 1, 2),
    ),
    768: ((256, 144, 1, 1, 2), (192, 192, 1, 1, 2), (192, 192, 1, 2)),
    1024: ((256, 192, 1), (256, 192, 1, 1, 2), (256, 192, 1, 2), (128, 192, 1, 2), (128, 192, 1, 1, 2)),
}  # fmt: skip
_ADDED: dict[int, tuple[_Cut, ...]] = {
    128: ((64, 40, 2, 2), (64, 40, 2, 1, 2), (64, 40, 2)),
    192: ((64, 60, 2), (64, 60, 2, 1, 2), (64, 64, 2, 1, 4), (128, 40, 2, 2), (64, 80, 2, 2)),
    256: (
        (64, 80, 1), (64, 80, 1, 2), (64, 80, 2, 2), (64, 80, 2, 1, 2), (128, 40, 2),
        (128, 40, 2, 1, 2), (128, 40, 2, 1, 4),
    ),
    384: ((64, 120, 1), (64, 120, 2, 2), (64, 120, 1, 1, 2), (128, 60, 1, 1, 2), (64, 128, 1, 2)),
    512: (
        (128, 80, 1), (128, 80, 1, 2), (128, 80, 1, 1, 2), (64, 160, 1), (64, 160, 1, 2),
        (64, 160, 1, 4),
    ),
    768: ((128, 120, 1), (128, 120, 1, 1, 2), (192, 80, 1, 2), (192, 80, 1, 1, 2)),
    1024: ((256, 80, 1, 1, 2), (128, 160, 1, 2), (128, 160, 1, 1, 2), (128, 80, 1, 2)),
}  # fmt: skip
_BESIDE: dict[int, tuple[_Cut, ...]] = {
    256: ((64, 80, 1, 2),),
    384: ((64, 120, 2, 2), (128, 60, 1, 1, 2)),
    512: ((128, 80, 1, 2), (128, 80, 1, 1, 2), (64, 160, 1, 4)),
    768: ((128, 120, 1, 1, 2), (192, 80, 1, 2)),
    1024: ((128, 160, 1, 2), (128, 160, 1, 1, 2), (256, 80, 1, 1, 2)),
}
_GATE_UP: dict[int, tuple[_Cut, ...]] = {
    128: ((128, 76, 1), (128, 76, 1, 1, 2), (128, 76, 1, 1, 4), (64, 76, 1, 2)),
    192: ((192, 76, 1), (192, 76, 1, 1, 2), (192, 76, 1, 1, 4)),
    256: ((256, 76, 1), (256, 76, 1, 1, 2), (256, 76, 1, 1, 4), (128, 76, 1), (128, 76, 1, 2)),
    384: ((128, 76, 1, 1, 2), (192, 76, 1, 2), (192, 76, 1, 1, 2), (128, 114, 1, 1, 2)),
    512: (
        (128, 100, 1), (128, 100, 1, 2), (128, 100, 1, 1, 2), (256, 76, 1), (256, 76, 1, 2), (256, 76, 1, 1, 2),
        (256, 76, 1, 1, 4), (128, 76, 1, 2),
    ),
    768: ((256, 76, 1, 1, 2), (192, 100, 1, 2), (192, 100, 1, 1, 2), (128, 112, 1, 2)),
    1024: ((256, 76, 1, 1, 2), (128, 120, 1, 2), (128, 120, 1, 1, 2), (192, 76, 1, 2)),
}  # fmt: skip
_KINDS = {"qkv": Kind.PLAIN, "o": Kind.ADDED, "gate_up": Kind.GATED, "down": Kind.ADDED}
_LISTED = {"qkv": _QKV, "o": _ADDED, "gate_up": _GATE_UP, "down": _ADDED}
ROWS = tuple(_QKV)
_GATES_4096: dict[int, tuple[_Cut, ...]] = {
    128: ((128, 96, 1), (128, 96, 1, 1, 2), (64, 96, 1, 2)),
    256: ((256, 96, 1), (256, 96, 1, 1, 2), (128, 96, 1, 2)),
    384: ((192, 96, 1, 2), (192, 96, 1, 1, 2)),
    512: ((256, 96, 1, 2), (256, 96, 1, 1, 2)),
    768: ((256, 96, 1, 1, 2),),
    1024: ((256, 96, 1, 2), (256, 96, 1, 1, 2)),
    2048: ((256, 96, 1, 2), (256, 96, 1, 1, 2)),
    4096: ((256, 96, 1, 1, 2),),
}
_ADDED_4096: dict[int, tuple[_Cut, ...]] = {
    128: ((64, 64, 1, 2), (128, 32, 1, 1, 2)),
    256: ((128, 64, 1, 2), (128, 64, 1, 1, 2), (64, 128, 1, 2)),
    512: ((128, 128, 1, 2), (128, 128, 1, 1, 2)),
    1024: (),
}
_QKV_4096: dict[int, tuple[_Cut, ...]] = {
    128: ((64, 96, 1, 2),),
    256: ((128, 96, 1, 2), (128, 96, 1, 1, 2)),
    512: ((128, 192, 1, 2), (256, 96, 1, 1, 2)),
    1024: (),
}
"""The same for weights of 4,096: tiles that fill whole waves there."""
_WIDER = 4096
_LISTED_4096 = {"qkv": _QKV_4096, "o": _ADDED_4096, "gate_up": _GATES_4096, "down": _ADDED_4096}


def wide_tilings(name: str, rows: int, hidden: int = 2560) -> tuple[PersistentTiling, ...]:
    """Return the candidates of a product: plain ones among those of a sum have its norm begun by a launch behind."""
    kind, wider = _KINDS[name], hidden >= _WIDER
    listed = _LISTED_4096[name] if wider else _LISTED[name]
    most = next((most for most in listed if rows <= most), max(listed))
    plain = () if wider or kind != Kind.ADDED else _BESIDE.get(most, ())
    return (*(_fitted(kind, *cut) for cut in listed[most]), *(_fitted(Kind.PLAIN, *cut) for cut in plain))


def everything() -> tuple[PersistentTiling, ...]:
    """Return all of them once."""
    found = (
        wide_tilings(name, rows, hidden) for name in _LISTED for rows in (*ROWS, _WIDER) for hidden in (2560, _WIDER)
    )
    return tuple(dict.fromkeys(tiling for each in found for tiling in each))


def _fitted(kind: Kind, rows: int, band: int, subs: int, share: int = 1, across: int = 1) -> PersistentTiling:
    return fitted(kind, rows, band, subs, share, across, wide=True)
