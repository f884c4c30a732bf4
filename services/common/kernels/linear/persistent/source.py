"""The source of a tiling's kernel in CUDA C++."""

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.persistent.tiling import PersistentTiling


def source_of(tiling: PersistentTiling) -> Source:
    """Return what a compiler is given."""
    sizes = defined(
        rows=tiling.rows, band=tiling.band, subs=tiling.subs, stages=tiling.stages, share=tiling.share,
        across=tiling.across, ctas=tiling.ctas, wide=int(tiling.wide), later=int(tiling.later), kind=int(tiling.kind),
    )  # fmt: skip
    instruction = wgmma("mma", tiling.lines, registers=False, kind="bf16" if tiling.wide else "s8")
    return Source("linear/persistent/product.cu", sizes + instruction)


@kept
def program_of(tiling: PersistentTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)
