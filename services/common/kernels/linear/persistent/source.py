"""The source of a tiling's kernel in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda import defined, read, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.cuda import FOLDER
from services.common.kernels.linear.persistent.tiling import PersistentTiling

_BEFORE = (
    "sizes.cu", "asynchronous.cu", "bfloat16.cu", "primitives.cu", "multiply.cu", "loader.cu", "arithmetic.cu",
    "ends.cu",
)  # fmt: skip
_AFTER = ("plain.cu", "best.cu", "scored.cu", "later.cu", "product.cu")
_OWN = Path(__file__).parent


def source_of(tiling: PersistentTiling) -> str:
    """Return what a compiler is given; it includes nothing."""
    sizes = defined(
        rows=tiling.rows, band=tiling.band, subs=tiling.subs, stages=tiling.stages, share=tiling.share,
        across=tiling.across, ctas=tiling.ctas, wide=int(tiling.wide), later=int(tiling.later), kind=int(tiling.kind),
    )  # fmt: skip
    instruction = wgmma("mma", tiling.lines, registers=False, kind="bf16" if tiling.wide else "s8")
    files = *_BEFORE, "unscaled.cu" if tiling.wide else "scales.cu", *_AFTER
    return "\n".join((sizes, instruction, read(files, _OWN, FOLDER)))


@cache
def program_of(tiling: PersistentTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)
