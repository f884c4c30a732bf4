"""The source of products of many rows by experts."""

from typing import NamedTuple

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram

LINES, PLACES = 256, 160
"""Of a tile."""
_THREADS, _ROW, _FEWER = 384, 128, 128
_MOST_BYTES, _ALIGNMENT, _BARRIERS, _PLACE_BYTES, _MOST_STEPS = 227 * 1024, 1024, 16, 8, 32


class TileShape(NamedTuple):
    """Depth and outputs of a product, experts of a row, whether it is the gated one, and what its weights are."""

    depth: int
    outputs: int
    ranks: int
    gated: bool
    coded: bool = False
    short: bool = False

    @property
    def inputs(self) -> int:
        """Of a stage."""
        return _ROW if self.coded else _ROW // 2

    @property
    def band(self) -> int:
        """Outputs of a tile."""
        return LINES // 2 if self.gated else LINES

    @property
    def stages(self) -> int:
        """Of the ring: as many as find room."""
        return (_MOST_BYTES - _ALIGNMENT - PLACES * _PLACE_BYTES) // (self._stage_bytes + _BARRIERS)

    @property
    def shared_bytes(self) -> int:
        """Of a CTA."""
        return _ALIGNMENT + self.stages * (self._stage_bytes + _BARRIERS) + PLACES * _PLACE_BYTES

    @property
    def _stage_bytes(self) -> int:
        return LINES * _ROW + self.inputs * 2 * PLACES

    def fits(self) -> bool:
        """Whether there is such a kernel."""
        if self.depth % self.inputs or self.outputs % 16:
            return False
        return not self.coded or self.depth // self.inputs <= _MOST_STEPS


def source_of(shape: TileShape) -> Source:
    """Return what a compiler is given."""
    build = defined(
        depth=shape.depth, outputs=shape.outputs, ranks=shape.ranks, gated=int(shape.gated), stages=shape.stages,
        coded=int(shape.coded), short=int(shape.short),
    )  # fmt: skip
    for rows in (_FEWER, PLACES):
        build += wgmma(f"described_{rows}", rows, registers=False) + wgmma(f"held_{rows}", rows, registers=True)
    return Source("experts/tiles/product.cu", build)


@kept
def program_of(shape: TileShape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "product", _THREADS, shape.shared_bytes)
