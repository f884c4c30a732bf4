"""Mailbox writes on the GPU, one program a row. Bytes for B rows of K drafts: B (12 K + 56), without parents."""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous


def write_mailbox(
    drafts_BK: Tensor, rows_B: Tensor, epochs_S: Tensor, stamp_2: Tensor, tokens_SK: Tensor, tags_S3: Tensor,
    parents_BK: Tensor | None = None, parents_SK: Tensor | None = None,
) -> None:  # fmt: skip
    """Write the drafts of every row's slot, then its tag."""
    assert tags_S3.is_contiguous(), "tags must be contiguous"
    assert parents_SK is None or parents_SK.stride() == tokens_SK.stride(), "parents lie as tokens do"
    count, width = drafts_BK.shape
    _post_drafts_kernel[(count,)](
        drafts_BK, rows_B, epochs_S, stamp_2, tokens_SK, tags_S3, parents_BK, parents_SK, *drafts_BK.stride(),
        *(drafts_BK if parents_BK is None else parents_BK).stride(), tokens_SK.stride(0), WIDTH=width,
        WIDTH_PAD=triton.next_power_of_2(width), PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip


@triton.jit
def _post_drafts_kernel(
    drafts_ptr, rows_ptr, epochs_ptr, stamp_ptr, tokens_ptr, tags_ptr, parents_ptr, mailbox_parents_ptr,
    stride_row, stride_draft, stride_parents, stride_parent, stride_tokens,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    allow_next(PDL)
    await_previous(PDL)
    slot = tl.load(rows_ptr + row).to(tl.int64)
    column = tl.arange(0, WIDTH_PAD)
    inside = column < WIDTH
    draft = tl.load(drafts_ptr + row * stride_row + column * stride_draft, mask=inside, other=0)
    tl.store(tokens_ptr + slot * stride_tokens + column, draft.to(tokens_ptr.dtype.element_ty), mask=inside)
    if parents_ptr is not None:
        parent = tl.load(parents_ptr + row * stride_parents + column * stride_parent, mask=inside, other=0)
        tl.store(mailbox_parents_ptr + slot * stride_tokens + column, parent.to(tl.int32), mask=inside)
    tl.debug_barrier()
    tl.store(tags_ptr + slot * 3, tl.load(stamp_ptr))
    tl.store(tags_ptr + slot * 3 + 1, tl.load(epochs_ptr + slot))
    tl.store(tags_ptr + slot * 3 + 2, tl.load(stamp_ptr + 1))
