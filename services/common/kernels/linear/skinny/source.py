"""The source of a tiling's kernel in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda import defined, read, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.cuda import FOLDER
from services.common.kernels.linear.skinny.tiling import Band, SkinnyTiling

_SHARED = ("asynchronous.cu", "bfloat16.cu", "arithmetic.cu")
_OF_A_BAND = ("sizes.cu", "primitives.cu", "multiply.cu", "loader.cu", "ends.cu", "band.cu")
_KERNEL = ("product.cu",)
_THREADS = 160


def source_of(tiling: SkinnyTiling) -> str:
    """Return what a compiler is given; it includes nothing."""
    sizes = defined(rows=tiling.rows, kind=int(tiling.kind), leading=tiling.leaders)
    bands = (_sized("leading", tiling.leading, tiling.box), _sized("following", tiling.band, tiling.box))
    mma = wgmma("mma", tiling.rows, registers=False)
    return "\n".join((sizes, mma, _read(_SHARED), *bands, _read(_KERNEL)))


@cache
def program_of(tiling: SkinnyTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", _THREADS, tiling.shared_bytes)


def _sized(name: str, band: Band, box: int) -> str:
    sizes = {"LINES": band.lines, "BOX": box, "SUBS": band.subs, "STAGES": band.stages}
    constants = "".join(f"constexpr int {key} = {value};\n" for key, value in sizes.items())
    return f"namespace {name} {{\n{constants}{_read(_OF_A_BAND)}\n}}"


def _read(names: tuple[str, ...]) -> str:
    return read(names, Path(__file__).parent, FOLDER)
