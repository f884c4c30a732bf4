"""Mailbox and published slots on the GPU, each one launch.

Bytes for B rows of K drafts: B (12 K + 40) to read. Writing takes B (12 K + 56) without parents. Publishing S slots
takes 8 B + 40 S.
"""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.mailbox import Mapped
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_TILE = 256
"""Slots of a program that publishes; those of the mailbox have a row."""


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


def publish_slots(rows_B: Tensor, length_S: Tensor, anchor_S: Tensor, mapped: Mapped) -> None:
    """Copy a round's rows, and lengths and anchors of all slots."""
    rows, slots = len(rows_B), len(length_S)
    _publish_kernel[(triton.cdiv(max(rows, slots), _TILE),)](
        rows_B, length_S, anchor_S, mapped.rows_B, mapped.length_S, mapped.anchor_S, mapped.history_length_S, rows,
        slots, TILE=_TILE, PDL=PDL, **LAUNCH,
    )  # fmt: skip


@triton.jit
def _publish_kernel(
    rows_ptr, length_ptr, anchor_ptr, mapped_rows_ptr, mapped_length_ptr, mapped_anchor_ptr, mapped_end_ptr, rows,
    slots, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    row, slot = place < rows, place < slots
    tl.store(mapped_rows_ptr + place, tl.load(rows_ptr + place, mask=row), mask=row)
    length = tl.load(length_ptr + place, mask=slot)
    tl.store(mapped_length_ptr + place, length, mask=slot)
    tl.store(mapped_end_ptr + place, length + 1, mask=slot)
    tl.store(mapped_anchor_ptr + place, tl.load(anchor_ptr + place, mask=slot), mask=slot)
