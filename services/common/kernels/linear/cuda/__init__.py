"""What the products in CUDA C++ share: the ring of stages, and the arithmetic that ends a product."""

from enum import IntEnum
from pathlib import Path

FOLDER = Path(__file__).parent


class Kind(IntEnum):
    """What follows a product: its norm alone, SwiGLU of its halves, the sum with a stream, or that it gates rows."""

    PLAIN = 0
    GATED = 1
    ADDED = 2
    GATES = 3


def multiplication(columns: int) -> str:
    """Return the source of one wgmma: PTX names each sum of a thread, of which there are `columns` / 2."""
    count, kind = columns // 2, "unsigned long long"
    sums = ", ".join(f"%{number}" for number in range(count))
    outputs = ", ".join(f'"+f"(sums[{number}])' for number in range(count))
    instruction = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16"
    return (
        f"__device__ __forceinline__ void mma(float (&sums)[{count}], {kind} left, {kind} right) {{\n"
        f'  asm volatile("{instruction} {{{sums}}}, %{count}, %{count + 1}, 1, 1, 1, 0, 0;"\n'
        f'               : {outputs} : "l"(left), "l"(right));\n'
        "}\n"
    )
