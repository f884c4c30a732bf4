"""The source of a tiling's kernel in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.fused.tiling import FusedTiling

FOLDER = Path(__file__).parent
_FILES = ("sizes.cu", "primitives.cu", "loader.cu", "ends.cu", "product.cu")


def source_of(tiling: FusedTiling) -> str:
    """Return what a compiler is given; it includes nothing."""
    named = {
        "ROWS": tiling.rows, "BAND": tiling.band, "SUBS": tiling.subs, "STAGES": tiling.stages,
        "SHARE": tiling.share, "GATED": int(tiling.gated),
    }  # fmt: skip
    defines = "".join(f"#define {name} {value}\n" for name, value in named.items())
    parts = [(FOLDER / name).read_text(encoding="utf-8") for name in _FILES]
    return "\n".join((defines, multiplication(tiling.lines), *parts))


@cache
def program_of(tiling: FusedTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        DriverError: the compiler or the GPU refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)


def multiplication(lines: int) -> str:
    """Return the source of one wgmma: PTX names each sum of a thread, of which there are `lines` / 2."""
    count, kind = lines // 2, "unsigned long long"
    sums = ", ".join(f"%{number}" for number in range(count))
    outputs = ", ".join(f'"+f"(sums[{number}])' for number in range(count))
    instruction = f"wgmma.mma_async.sync.aligned.m64n{lines}k16.f32.bf16.bf16"
    return (
        f"__device__ __forceinline__ void mma(float (&sums)[{count}], {kind} x, {kind} weight) {{\n"
        f'  asm volatile("{instruction} {{{sums}}}, %{count}, %{count + 1}, 1, 1, 1, 0, 0;"\n'
        f'               : {outputs} : "l"(x), "l"(weight));\n'
        "}\n"
    )
