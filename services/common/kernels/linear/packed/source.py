"""The source of a tiling's kernel in CUDA C++."""

from functools import cache

from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.packed.tiling import PackedTiling


def source_of(tiling: PackedTiling) -> Source:
    """Return what a compiler is given."""
    build = defined(
        x_rows=tiling.rows, tile_lines=tiling.lines, band=tiling.band, subs=tiling.subs, stages=tiling.stages,
        ctas=tiling.ctas, warps=tiling.warps, cluster=tiling.cluster, bits=tiling.bits,
        fine=int(tiling.fine), short=int(tiling.short), wide=1, kind=int(tiling.kind),
    )  # fmt: skip
    return Source("linear/packed/left.cu", build + wgmma("mma", tiling.rows, registers=True))


@cache
def program_of(tiling: PackedTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)
