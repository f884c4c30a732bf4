"""The source of the last product of a row that is alone."""

from typing import NamedTuple

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram

LINES, SUB, ROWS = 64, 64, 8
"""Lines of a CTA, inputs of a swizzled row, and rows of a matrix instruction."""
_THREADS, _NUMBER_BYTES = 160, 2
_ALIGNMENT, _BARRIERS = 1024, 1024
_MOST_SHARED = 113 * 1024
"""Bytes of a CTA of which a multiprocessor has two."""


class Shape(NamedTuple):
    """Places of a tile, and 64s of depth."""

    tile: int
    steps: int

    @property
    def shared_bytes(self) -> int:
        """Of all operands of a CTA, and its barriers."""
        return _ALIGNMENT + _BARRIERS + self.steps * (ROWS + LINES) * SUB * _NUMBER_BYTES


def shape_of(tile: int, outputs: int, depth: int) -> Shape | None:
    """Return what the kernel is built for; None where it takes no such weight."""
    shape = Shape(tile, depth // SUB)
    return None if outputs % LINES or depth % SUB or shape.shared_bytes > _MOST_SHARED else shape


def source_of(shape: Shape) -> Source:
    """Return what a compiler is given."""
    build = defined(steps=shape.steps, tile=shape.tile)
    return Source("experts/alone/product.cu", build + wgmma("mma", ROWS, registers=False))


@kept
def program_of(shape: Shape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "multiply_alone", _THREADS, shape.shared_bytes)
