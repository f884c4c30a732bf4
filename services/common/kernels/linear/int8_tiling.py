"""How a product of integers is divided among programs, by measurement on an H200; no cut changes a bit."""

from typing import NamedTuple


class Int8Cut(NamedTuple):
    """Rows, lines and inputs of a tile; x_left: x is the left operand; bulk: tiles are copied whole."""

    rows: int
    band: int
    depth: int
    warps: int = 4
    stages: int = 4
    x_left: bool = False
    bulk: bool = False


_FEW_OUTPUTS, _WIDE_OUTPUT, _HEAD_OUTPUT = 4096, 8192, 65_536
_FEW_ROWS, _SOME_ROWS, _MANY_ROWS = 16, 64, 128


def int8_cut(outputs: int, rows: int) -> Int8Cut:
    """Return the cut of a weight with so many outputs for so many rows."""
    if outputs <= _FEW_OUTPUTS:
        return _narrow(rows)
    if rows <= _FEW_ROWS:
        return Int8Cut(16, 64, 128 if outputs > _WIDE_OUTPUT else 256, stages=6)
    if rows <= _SOME_ROWS:
        return Int8Cut(64, 64, 256, stages=5, bulk=True)
    if outputs <= _WIDE_OUTPUT:
        return Int8Cut(128, 64, 256, bulk=True) if rows <= _MANY_ROWS else Int8Cut(256, 128, 128, 8, bulk=True)
    if outputs > _HEAD_OUTPUT or rows <= _MANY_ROWS:
        return Int8Cut(128, 256, 128, 8, bulk=True)
    return Int8Cut(128, 128, 256, 8, 3, bulk=True)


def _narrow(rows: int) -> Int8Cut:
    """Return the cut of a weight that few programs share."""
    if rows <= _FEW_ROWS:
        return Int8Cut(16, 32, 512, stages=5, x_left=True)
    if rows <= _SOME_ROWS:
        return Int8Cut(64, 32, 512, x_left=True)
    if rows <= 2 * _MANY_ROWS:
        return Int8Cut(64, 64, 256, stages=5, bulk=True)
    return Int8Cut(128, 128, 256, 8, 3, bulk=True)
