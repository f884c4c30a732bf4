"""How a matrix product is divided among the programs of a launch, by measurement."""

from typing import NamedTuple


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

_MEASURED: dict[tuple[int, int, int], Tiling] = {
    (6144, 2560, 16): Tiling(64, 128, 6),
    (2560, 4096, 16): Tiling(32, 256, 5, 2, x_left=True),
    (19456, 2560, 16): Tiling(64, 128, 3),
    (2560, 9728, 16): Tiling(32, 256, 8, 2, x_left=True),
    (151936, 2560, 16): Tiling(64, 128),
    (6144, 2560, 32): Tiling(64, 256, bulk=True),
    (2560, 4096, 32): Tiling(64, 256, bulk=True),
    (19456, 2560, 32): Tiling(64, 128, 8),
    (2560, 9728, 32): Tiling(64, 128, 8, bulk=True),
    (151936, 2560, 32): Tiling(128, 128, 5, bulk=True),
    (6144, 2560, 64): Tiling(64, 128, 7, bulk=True),
    (2560, 4096, 64): Tiling(32, 128, 8, x_left=True),
    (19456, 2560, 64): Tiling(64, 128, 7, x_left=True),
    (2560, 9728, 64): Tiling(32, 128, 8, x_left=True),
    (151936, 2560, 64): Tiling(128, 128, bulk=True),
}
"""The quickest cuts found on an H200 for numbers of two bytes, by outputs, depth and most rows."""


_BROAD, _NARROW = Tiling(32, 128, 4, 2, x_left=True), Tiling(16, 256, 4, 2, x_left=True)
_DEEP, _HEAD = Tiling(32, 256, 8, 2, x_left=True), Tiling(64, 128)
_ALIKE: dict[tuple[int, int], tuple[Tiling, Tiling, Tiling | None]] = {
    # Qwen3.5-4B: into the recurrent mixer, gate of attention, gate and up, down, head.
    (12352, 2560): (_BROAD, Tiling(64, 128, bulk=True), Tiling(64, 128, 3, bulk=True)),
    (4096, 2560): (_NARROW, Tiling(32, 256, bulk=True), Tiling(32, 128, 8, x_left=True)),
    (18432, 2560): (Tiling(64, 128, 3), Tiling(64, 128, 8), Tiling(64, 128, 7, x_left=True)),
    (2560, 9216): (_DEEP, Tiling(64, 128, 8, bulk=True), Tiling(32, 128, 8, x_left=True)),
    (248320, 2560): (_HEAD, Tiling(128, 128, 5, bulk=True), Tiling(128, 128, bulk=True)),
    # Qwen3.5-27B: the same, with queries, keys and values, and the products back to the stream.
    (16480, 5120): (_BROAD, Tiling(64, 128, bulk=True), None),
    (8192, 5120): (Tiling(64, 256, 4), Tiling(64, 256, bulk=True), None),
    (6144, 5120): (_NARROW, Tiling(64, 256, bulk=True), None),
    (5120, 6144): (_NARROW, Tiling(64, 256, bulk=True), None),
    (34816, 5120): (_BROAD, Tiling(64, 128, 8), None),
    (5120, 17408): (_NARROW, Tiling(64, 128, 8, bulk=True), None),
    (248320, 5120): (_HEAD, Tiling(128, 128, 5, bulk=True), None),
}
"""Cuts by rows, for weights whose own were not measured: like those of measured shapes near them."""
_ROWS = (16, 32, 64)


def tiling(outputs: int, depth: int, most_rows: int, number_bytes: int) -> Tiling | None:
    """Return the cut of a weight [outputs, depth] for up to so many rows; None where cuBLAS is the better choice."""
    if number_bytes == _MEASURED_BYTES and (outputs, depth, most_rows) in _MEASURED:
        return _MEASURED[outputs, depth, most_rows]
    if number_bytes == _MEASURED_BYTES and (outputs, depth) in _ALIKE:
        return _ALIKE[outputs, depth][_ROWS.index(most_rows)]
    if most_rows > _FEW_ROWS:
        return None
    return Tiling(64 if outputs >= _WIDE_OUTPUT else 32, 128)
