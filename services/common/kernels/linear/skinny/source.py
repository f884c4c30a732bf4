"""The source of a tiling's kernel in CUDA C++."""

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.skinny.tiling import SkinnyTiling

_THREADS = 160


def source_of(tiling: SkinnyTiling) -> Source:
    """Return what a compiler is given."""
    bands = {"leading": tiling.leading, "following": tiling.band}
    sizes = {f"{name}_{size}": number for name, band in bands.items() for size, number in band._asdict().items()}
    build = defined(rows=tiling.rows, kind=int(tiling.kind), leading=tiling.leaders, box=tiling.box, **sizes)
    return Source("linear/skinny/product.cu", build + wgmma("mma", tiling.rows, registers=False))


@kept
def program_of(tiling: SkinnyTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", _THREADS, tiling.shared_bytes)
