"""Mailbox copy on the GPU, one program a row. Bytes for B rows of K drafts: B (12 K + 40), a launch in all but name."""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous


def read_mailbox(
    tokens_SK: Tensor, tags_S3: Tensor, rows_B: Tensor, epochs_S: Tensor, expected_2: Tensor, vocab: int, out_BK: Tensor
) -> Tensor:
    """Copy the drafts of every row's slot; rows with a foreign tag or an id out of range become -1."""
    assert out_BK.is_contiguous(), "the copy must be contiguous"
    count, width = out_BK.shape
    _read_mailbox_kernel[(count,)](
        tokens_SK, tags_S3, rows_B, epochs_S, expected_2, out_BK, tokens_SK.stride(0), vocab,
        WIDTH=width, WIDTH_PAD=triton.next_power_of_2(width), PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip
    return out_BK


@triton.jit
def _read_mailbox_kernel(
    tokens_ptr, tags_ptr, rows_ptr, epochs_ptr, expected_ptr, out_ptr, stride, vocab,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    allow_next(PDL)
    # The kernel before it is the wait for the drafter.
    await_previous(PDL)
    slot = tl.load(rows_ptr + row).to(tl.int64)
    column = tl.arange(0, WIDTH_PAD)
    inside = column < WIDTH
    # Volatile: the drafter is another process and may write while this kernel runs.
    token = tl.load(tokens_ptr + slot * stride + column, mask=inside, other=0, volatile=True).to(tl.int64)
    usable = tl.load(tags_ptr + slot * 3, volatile=True) == tl.load(expected_ptr)
    usable &= tl.load(tags_ptr + slot * 3 + 1, volatile=True) == tl.load(epochs_ptr + slot)
    usable &= tl.load(tags_ptr + slot * 3 + 2, volatile=True) == tl.load(expected_ptr + 1)
    wild = tl.sum(((token < 0) | (token >= vocab)).to(tl.int32), 0)
    tl.store(out_ptr + row * WIDTH + column, tl.where(usable & (wild == 0), token, -1), mask=inside)
