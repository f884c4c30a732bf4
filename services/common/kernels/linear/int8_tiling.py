"""How a product by a weight of eight bits is divided among programs, up to as many rows as they are quicker for."""

from typing import NamedTuple


class Int8Cut(NamedTuple):
    """Rows and lines of a program, its warps and the pipeline's depth; x_left: x is the left operand.

    None of it changes a bit: every program adds its whole depth in order.
    """

    rows: int
    band: int
    warps: int = 4
    stages: int = 6
    x_left: bool = False


MOST_ROWS = 64
"""Products of more rows wait for the matrix units, not for the weight's bytes: the library takes the wide numbers."""
_FEW_OUTPUTS = 4096


def int8_cut(outputs: int, depth: int, rows: int) -> Int8Cut | None:
    """Return the cut of a weight [outputs, depth] for so many rows; None where the library takes the wide numbers."""
    if rows > MOST_ROWS:
        return None
    few = outputs <= _FEW_OUTPUTS
    if rows <= 16:
        return Int8Cut(16, 16, 2, 8, x_left=True) if few else Int8Cut(16, 64)
    if rows <= 32:
        return Int8Cut(32, 16, 2, 8, x_left=True) if few else Int8Cut(32, 64)
    return Int8Cut(32, 64) if few else Int8Cut(64, 64, 4, 5)
