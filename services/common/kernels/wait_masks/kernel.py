"""One warp that polls a word of each row.

The words come by copies of another stream, behind those of the masks. The kernel keeps one answer a row, because accept
has several kernels, and a mask may come between two of them.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.cuda_program import want_shared_memory
from services.common.kernels.dispatch import INTERPRETED


def wait_masks(
    rows_B: Tensor, masked_S: Tensor, made_S: Tensor, number_1: Tensor, ready_B: Tensor, pad_slot: int, limit_s: float
) -> None:
    """Hold what follows until all masks are made, or for `limit_s`; the interpreter has no clock and does not wait."""
    bucket = len(rows_B)
    kernel = _wait_kernel[(1,)](
        rows_B, masked_S.view(torch.uint8), made_S, number_1, ready_B, bucket,
        pad_slot, ROWS=triton.next_power_of_2(bucket), LIMIT_NS=0 if INTERPRETED else int(limit_s * 1e9), num_warps=1,
    )  # fmt: skip
    if not INTERPRETED:
        want_shared_memory(kernel)


@triton.jit
def _wait_kernel(
    rows_ptr, masked_ptr, made_ptr, number_ptr, ready_ptr, bucket, pad_slot, ROWS: tl.constexpr, LIMIT_NS: tl.constexpr
):  # fmt: skip
    row = tl.arange(0, ROWS)
    slot = tl.load(rows_ptr + row, mask=row < bucket, other=pad_slot)
    number = tl.load(number_ptr)
    masked = tl.load(masked_ptr + slot) != 0
    start = tl.extra.cuda.globaltimer() if LIMIT_NS > 0 else 0
    # Volatile: another stream writes it meanwhile.
    late = masked & (tl.load(made_ptr + slot, volatile=True) < number)
    waits = tl.sum(late.to(tl.int32), 0)
    if LIMIT_NS > 0:
        while waits > 0:
            late = masked & (tl.load(made_ptr + slot, volatile=True) < number)
            waits = tl.sum(late.to(tl.int32), 0)
            waits = tl.where(tl.extra.cuda.globaltimer() - start > LIMIT_NS, 0, waits)
    tl.store(ready_ptr + row, tl.where(late, pad_slot, slot), mask=row < bucket)
