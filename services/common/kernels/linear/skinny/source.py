"""The source of a tiling's kernel in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda import defined, read, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.cuda import FOLDER
from services.common.kernels.linear.skinny.tiling import SkinnyTiling

_FILES = (
    "sizes.cu", "asynchronous.cu", "bfloat16.cu", "primitives.cu", "multiply.cu", "loader.cu", "arithmetic.cu",
    "ends.cu", "product.cu",
)  # fmt: skip
_THREADS = 160


def source_of(tiling: SkinnyTiling) -> str:
    """Return what a compiler is given; it includes nothing."""
    sizes = defined(rows=tiling.rows, lines=tiling.lines, subs=tiling.subs, stages=tiling.stages, kind=int(tiling.kind))
    return "\n".join((sizes, wgmma("mma", tiling.rows, registers=False), read(_FILES, Path(__file__).parent, FOLDER)))


@cache
def program_of(tiling: SkinnyTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        DriverError: the compiler or the GPU refuses it.
    """
    return CudaProgram(source_of(tiling), "product", _THREADS, tiling.shared_bytes)
