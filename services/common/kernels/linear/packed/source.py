"""The source of a tiling's kernel in CUDA C++."""

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.packed.tiling import PackedTiling


def source_of(tiling: PackedTiling) -> Source:
    """Return what a compiler is given."""
    packing = tiling.packing
    build = defined(
        rows=tiling.rows, held=tiling.held, band=tiling.band, subs=tiling.subs, stages=tiling.stages,
        boxes=tiling.boxes, thick=tiling.thick, wides=tiling.wides, warps=tiling.warps, turns=tiling.turns,
        bits=packing.bits, fine=int(packing.fine), short=int(packing.short), kind=int(tiling.kind),
        share=1, across=1, ctas=1, wide=1, later=0,
    )  # fmt: skip
    return Source("linear/packed/product.cu", build + wgmma("mma", tiling.lines, registers=False))


@kept
def program_of(tiling: PackedTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)
