"""How a matrix product is divided among the programs of a launch, by measurement."""

from typing import NamedTuple


class Tiling(NamedTuple):
    """Outputs and inputs of a tile, programs that share a band, the pipeline's depth; bulk: tiles are copied whole."""

    band: int
    depth: int
    shares: int
    stages: int = 4
    warps: int = 4
    bulk: bool = False


_SMALL_DEPTH = 128
_FEW_ROWS = 16
_WIDE_OUTPUT = 8192
_MEASURED_BYTES = 2

_MEASURED: dict[tuple[int, int, int], Tiling] = {
    (6144, 2560, 16): Tiling(64, 128, 1, 6),
    (2560, 4096, 16): Tiling(64, 128, 4, 4),
    (19456, 2560, 16): Tiling(64, 128, 1, 3),
    (2560, 9728, 16): Tiling(64, 128, 3, 5),
    (6144, 2560, 32): Tiling(64, 128, 1, 6),
    (2560, 4096, 32): Tiling(64, 128, 3, 6),
    (19456, 2560, 32): Tiling(64, 128, 1, 8),
    (2560, 9728, 32): Tiling(64, 128, 3, 6),
    (6144, 2560, 64): Tiling(64, 128, 1, 5),
    (2560, 4096, 64): Tiling(64, 128, 2, 5),
    (19456, 2560, 64): Tiling(128, 128, 1, 3, 4, bulk=True),
    (2560, 9728, 64): Tiling(64, 128, 3, 5),
}
"""The quickest cuts found on an H200 for numbers of two bytes, by outputs, depth and most rows."""


def tiling(outputs: int, depth: int, most_rows: int, number_bytes: int) -> Tiling | None:
    """Return the cut of a weight [outputs, depth] for up to so many rows; None where cuBLAS is the better choice."""
    measured = _MEASURED.get((outputs, depth, most_rows)) if number_bytes == _MEASURED_BYTES else None
    if measured is not None or most_rows > _FEW_ROWS:
        return measured
    if depth <= _SMALL_DEPTH:
        return Tiling(32, 128, 1)
    return Tiling(64, 128, 1 if outputs >= _WIDE_OUTPUT else 2)
