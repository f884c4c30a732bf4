"""The source of a tiling's kernel in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda import defined, read, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.cuda import FOLDER
from services.common.kernels.linear.eight.tiling import EightTiling

_FILES = (
    "sizes.cu", "asynchronous.cu", "bfloat16.cu", "primitives.cu", "multiply.cu", "loader.cu", "arithmetic.cu",
    "ends.cu", "scales.cu", "product.cu",
)  # fmt: skip
_OWN = Path(__file__).parent
_FUSED = _OWN.parent / "fused"
"""Has the ends of a product, and how a warpgroup multiplies."""


def source_of(tiling: EightTiling) -> str:
    """Return what a compiler is given; it includes nothing."""
    sizes = defined(
        rows=tiling.rows, band=tiling.band, subs=tiling.subs, stages=tiling.stages, share=tiling.share,
        ctas=tiling.ctas, kind=int(tiling.kind),
    )  # fmt: skip
    instruction = wgmma("mma", tiling.lines, registers=False, kind="s8")
    return "\n".join((sizes, instruction, read(_FILES, _OWN, _FUSED, FOLDER)))


@cache
def program_of(tiling: EightTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        DriverError: the compiler or the GPU refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)
