"""The source of a tiling's kernel in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda import defined, read, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.cuda import FOLDER
from services.common.kernels.linear.fused.tiling import FusedTiling

_FILES = (
    "sizes.cu", "asynchronous.cu", "bfloat16.cu", "primitives.cu", "multiply.cu", "loader.cu", "arithmetic.cu",
    "ends.cu", "product.cu",
)  # fmt: skip


def source_of(tiling: FusedTiling) -> str:
    """Return what a compiler is given; it includes nothing."""
    sizes = defined(
        rows=tiling.rows, band=tiling.band, subs=tiling.subs, stages=tiling.stages, share=tiling.share,
        gated=int(tiling.gated),
    )  # fmt: skip
    return "\n".join((sizes, wgmma("mma", tiling.lines, registers=False), read(_FILES, Path(__file__).parent, FOLDER)))


@cache
def program_of(tiling: FusedTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)
