"""How a matrix product is divided among the programs of a launch, by measurement."""

from typing import NamedTuple

from services.common.kernels.tables import cuts


class Tiling(NamedTuple):
    """Lines and inputs of a tile and the pipeline's depth; x_left: x is the left operand; bulk: tiles are copied whole.

    None of it changes a bit: every band adds its whole depth in order.
    """

    band: int
    depth: int
    stages: int = 4
    warps: int = 4
    x_left: bool = False
    bulk: bool = False


_FEW_ROWS = 16
_WIDE_OUTPUT = 8192
_MEASURED_BYTES = 2
_MEASURED: dict[tuple[int, int, int], Tiling | None] = {
    (entry.lines, entry.depth, entry.rows): Tiling(**entry.cut) if isinstance(entry.cut, dict) else None
    for entry in cuts("triton")
}
"""For numbers of two bytes, by outputs, depth and most rows; of some weights like those of measured ones near them."""


def tiling(outputs: int, depth: int, most_rows: int, number_bytes: int) -> Tiling | None:
    """Return the cut of a weight [outputs, depth] for up to so many rows; None where cuBLAS is the better choice."""
    if number_bytes == _MEASURED_BYTES and (outputs, depth, most_rows) in _MEASURED:
        return _MEASURED[outputs, depth, most_rows]
    if most_rows > _FEW_ROWS:
        return None
    return Tiling(64 if outputs >= _WIDE_OUTPUT else 32, 128)
