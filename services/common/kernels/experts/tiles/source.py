"""The source of products of many rows by experts."""

from typing import NamedTuple

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram

LINES, PLACES = 256, 160
"""Of a tile of a prompt."""
_FEWER, _NUMBERS = {16: 16, 32: 16, 64: 32, 96: 64, 160: 128}, 64
"""By places of a tile the rows that a quicker product has, and least places of numbers."""
_LOW_LINES, _LOW = 128, 64
"""Of low tiles: lines, and most places."""
_THREADS, _ROW, _WARPS = 384, 128, 8
_MOST_BYTES, _ALIGNMENT, _BARRIERS, _PLACE_BYTES, _MOST_STEPS = 227 * 1024, 1024, 16, 16, 32
_RESERVED = 1024
"""Of each CTA, by the GPU."""


class TileShape(NamedTuple):
    """Depth and outputs of a product, experts of a row, whether it is gated, what its weights are, places of a tile."""

    depth: int
    outputs: int
    ranks: int
    gated: bool
    coded: bool = False
    short: bool = False
    places: int = PLACES

    @property
    def low(self) -> bool:
        """Whether a tile has few rows: bytes are what it waits for, and two CTAs share a multiprocessor."""
        return self.places <= _LOW

    @property
    def lines(self) -> int:
        """Of a tile."""
        return _LOW_LINES if self.low else LINES

    @property
    def ctas(self) -> int:
        """Of a multiprocessor."""
        return 2 if self.low else 1

    @property
    def inputs(self) -> int:
        """Of a stage."""
        return _ROW if self.coded else _ROW // 2

    @property
    def band(self) -> int:
        """Outputs of a tile."""
        return self.lines // 2 if self.gated else self.lines

    @property
    def warp_outputs(self) -> int:
        """Outputs of a warp, which are neighbours."""
        return self.band // _WARPS

    @property
    def stages(self) -> int:
        """Of the ring: as many as find room."""
        most = (_MOST_BYTES + _RESERVED) // self.ctas - _RESERVED
        return (most - _ALIGNMENT - self.places * _PLACE_BYTES) // (self._stage_bytes + _BARRIERS)

    @property
    def shared_bytes(self) -> int:
        """Of a CTA."""
        return _ALIGNMENT + self.stages * (self._stage_bytes + _BARRIERS) + self.places * _PLACE_BYTES

    @property
    def _stage_bytes(self) -> int:
        return self.lines * _ROW + self.inputs * 2 * self.places

    def fits(self) -> bool:
        """Whether there is such a kernel."""
        if self.depth % self.inputs or self.outputs % self.warp_outputs or self.places not in _FEWER:
            return False
        if self.places < _NUMBERS and not self.coded:
            return False
        return not self.coded or self.depth // self.inputs <= _MOST_STEPS


def source_of(shape: TileShape) -> Source:
    """Return what a compiler is given."""
    fewer = _FEWER[shape.places]
    build = defined(
        depth=shape.depth, outputs=shape.outputs, ranks=shape.ranks, gated=int(shape.gated), stages=shape.stages,
        coded=int(shape.coded), short=int(shape.short), lines=shape.lines, places=shape.places, fewer=fewer,
        ctas=shape.ctas,
    )  # fmt: skip
    for name, rows in (("fewer", fewer), ("most", shape.places)):
        build += wgmma(f"described_{name}", rows, registers=False) + wgmma(f"held_{name}", rows, registers=True)
    return Source("experts/tiles/product.cu", build)


@kept
def program_of(shape: TileShape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "product", _THREADS, shape.shared_bytes)
