"""How a matrix product in Triton is divided among the programs of a launch; no cut changes a bit."""

from typing import NamedTuple


class Tiling(NamedTuple):
    """Lines and inputs of a tile, and the pipeline's depth.

    None of it changes a bit: every band adds its whole depth in order.
    """

    band: int
    depth: int
    stages: int = 4
    warps: int = 4


_FEW_ROWS, _SOME_ROWS = 16, 64
_FEW_OUTPUTS, _WIDE_OUTPUT = 4096, 8192


def tiling(outputs: int, most_rows: int) -> Tiling | None:
    """Return the cut of a weight with so many outputs for up to so many rows; None where the library serves."""
    if most_rows > _FEW_ROWS:
        return None
    return Tiling(64 if outputs >= _WIDE_OUTPUT else 32, 128)


class Int8Cut(NamedTuple):
    """Rows, lines and inputs of a tile of integers."""

    rows: int
    band: int
    depth: int
    warps: int = 4
    stages: int = 4


def int8_cut(outputs: int, rows: int) -> Int8Cut:
    """Return the cut of a weight of eight bits with so many outputs for so many rows."""
    if rows <= _FEW_ROWS:
        return Int8Cut(16, 32 if outputs <= _FEW_OUTPUTS else 64, 128)
    return Int8Cut(64, 64, 128) if rows <= _SOME_ROWS else Int8Cut(128, 128, 128, 8, 3)
