"""How a matrix product in Triton is divided among the programs of a launch."""

from typing import NamedTuple


class Tiling(NamedTuple):
    """Lines and inputs of a tile, and the pipeline's depth.

    None of it changes a bit: every band adds its whole depth in order.
    """

    band: int
    depth: int
    stages: int = 4
    warps: int = 4


_FEW_ROWS = 16
_WIDE_OUTPUT = 8192


def tiling(outputs: int, most_rows: int) -> Tiling | None:
    """Return the cut of a weight with so many outputs for up to so many rows; None where the library serves."""
    if most_rows > _FEW_ROWS:
        return None
    return Tiling(64 if outputs >= _WIDE_OUTPUT else 32, 128)
