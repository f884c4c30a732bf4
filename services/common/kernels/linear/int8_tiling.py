"""How a product of integers in Triton is divided among programs; no cut changes a bit."""

from typing import NamedTuple


class Int8Cut(NamedTuple):
    """Rows, lines and inputs of a tile."""

    rows: int
    band: int
    depth: int
    warps: int = 4
    stages: int = 4


_FEW_OUTPUTS, _FEW_ROWS, _SOME_ROWS = 4096, 16, 64


def int8_cut(outputs: int, rows: int) -> Int8Cut:
    """Return the cut of a weight with so many outputs for so many rows."""
    if rows <= _FEW_ROWS:
        return Int8Cut(16, 32 if outputs <= _FEW_OUTPUTS else 64, 128)
    return Int8Cut(64, 64, 128) if rows <= _SOME_ROWS else Int8Cut(128, 128, 128, 8, 3)
