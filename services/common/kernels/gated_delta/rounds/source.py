"""The source of a round's kernel in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda_program import CudaProgram

FOLDER = Path(__file__).parent
PROGRAMS = (1, 2)
"""CTAs that share a processor: one that keeps its state in registers throughout, or two that take turns."""
_FILES = ("arithmetic.cu", "memory.cu", "kept.cu", "rows.cu", "block.cu", "factors.cu", "state.cu", "round.cu")
_THREADS = 256
_BLOCK_BYTES, _TAPS_BYTES, _ALIGNMENT = 78_848, 6_144, 1024


def source_of(programs: int) -> str:
    """Return what a compiler is given; it includes nothing."""
    parts = [(FOLDER / name).read_text(encoding="utf-8") for name in _FILES]
    products = product_source(16, turned=0), product_source(32, turned=0), product_source(128, turned=1)
    return "\n".join((f"#define PROGRAMS {programs}", *products, *parts))


def shared_bytes(programs: int) -> int:
    """Return those of a CTA: one that is alone on its processor prepares two blocks together."""
    return (2 if programs == 1 else 1) * _BLOCK_BYTES + _TAPS_BYTES + _ALIGNMENT


@cache
def program_of(programs: int) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        DriverError: the compiler or the GPU refuses it.
    """
    return CudaProgram(source_of(programs), "delta_round", _THREADS, shared_bytes(programs))


def product_source(lines: int, turned: int) -> str:
    """Return the source of one wgmma with an operand in registers: PTX names each sum of a thread, `lines` / 2."""
    count = lines // 2
    sums = ", ".join(f"%{number}" for number in range(count))
    outputs = ", ".join(f'"+f"(sums[{number}])' for number in range(count))
    operand = ", ".join(f"%{count + number}" for number in range(4))
    instruction = f"wgmma.mma_async.sync.aligned.m64n{lines}k16.f32.f16.f16"
    return (
        f"__device__ __forceinline__ void multiply_{lines}(float (&sums)[{count}], const unsigned (&a)[4],\n"
        "    unsigned long long b, int added) {\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 5}, 0;\\n"\n'
        f'      "{instruction} {{{sums}}}, {{{operand}}}, %{count + 4}, p, 1, 1, {turned};\\n}}"\n'
        f'      : {outputs} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(added));\n'
        "}\n"
    )
