"""Ids and places of a round's rows on the GPU in one launch instead of some eight, one program a row.

Bytes for B rows of N blocks and W positions: B (8 N + 32 W), a launch in all but name. Each program of a target finds
its row's place among all lengths, so that no layer has to sort them. A drafter reads lengths in its target's memory,
which may go on meanwhile: programs that read different ones could leave a place without a row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.row_table import RowTable
from services.common.kernels.span_attention.span import OPEN, Mask, Span

_COLUMNS, _OTHERS = 1024, 128


def prepare_span(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, drafts_BK: Tensor, block_size: int,
    mask: Mask = OPEN, table: RowTable | None = None,
) -> tuple[Tensor, Span]:  # fmt: skip
    """Return the ids of anchors and drafts, and their span, causal or as the mask says."""
    width = drafts_BK.shape[1] + 1
    if table is not None:
        seats_P, grain = table.seats_P, table.grain
        return prepare_rows(seats_P, anchor_S, length_S, table_SN, drafts_BK, grain, block_size, table=table)
    return prepare_rows(rows_B, anchor_S, length_S, table_SN, drafts_BK, width, block_size, grown=mask)


def seat_block(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, width: int, block_size: int, mask: int
) -> tuple[Tensor, Span]:
    """Return the ids of anchors and masks, and the span of their blocks over the context."""
    return prepare_rows(rows_B, anchor_S, length_S, table_SN, None, width, block_size, mask)


def prepare_rows(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, drafts_BK: Tensor | None, width: int,
    block_size: int, mask: int = 0, grown: Mask = OPEN, table: RowTable | None = None,
) -> tuple[Tensor, Span]:  # fmt: skip
    """Return ids [B, W] and their places; behind the anchor are the drafts, or masks without drafts.

    Rows that have `grown` have positions by depth. Those of a `table` are its pieces, which begin at their offsets.
    """
    lines_P, offsets_P = (None, None) if table is None else (table.lines_P, table.offsets_P)
    batch, columns = len(rows_B), table_SN.shape[1]
    table_BN = table_SN.new_empty((batch, columns))
    ids_BW, positions_BW = length_S.new_empty((2, batch, width))
    slots_T, (lengths_B, reach_B) = length_S.new_empty(batch * width), length_S.new_empty((2, batch))
    ranks_B2 = None if drafts_BK is None else rows_B.new_empty((batch, 2), dtype=torch.int32)
    _prepare_kernel[(batch,)](
        rows_B, anchor_S, length_S, table_SN, rows_B if drafts_BK is None else drafts_BK, table_BN, lengths_B, reach_B,
        ids_BW, positions_BW, slots_T, ranks_B2, grown.depths_BW, lines_P, offsets_P, table_SN.stride(0), columns, mask,
        batch, 0 if drafts_BK is None else drafts_BK.shape[1], HAS_DRAFTS=drafts_BK is not None,
        BLOCK_SIZE=block_size, WIDTH=width, WIDTH_PAD=triton.next_power_of_2(width), COLUMNS=_COLUMNS, OTHERS=_OTHERS,
        PDL=PDL, **LAUNCH,
    )  # fmt: skip
    places = table_BN, lengths_B, reach_B, width, block_size, positions_BW, slots_T
    return ids_BW, Span(*places, None, None, grown, ranks_B2=ranks_B2, side_by_side=table is not None)


@triton.jit
def _prepare_kernel(
    rows_ptr, anchors_ptr, length_ptr, tables_ptr, drafts_ptr, table_ptr, lengths_ptr, reach_ptr, ids_ptr,
    positions_ptr, slots_ptr, ranks_ptr, depths_ptr, lines_ptr, offsets_ptr, stride_table, columns, mask, batch, drafts,
    HAS_DRAFTS: tl.constexpr, BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr,
    COLUMNS: tl.constexpr, OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    allow_next(PDL)
    await_previous(PDL)
    seat = tl.load(rows_ptr + row).to(tl.int64)
    length = tl.load(length_ptr + seat).to(tl.int64)
    offset = tl.arange(0, WIDTH_PAD)
    inside = offset < WIDTH
    line, place = row, offset
    if lines_ptr is not None:
        begin = tl.load(offsets_ptr + row)
        line, place, length = tl.load(lines_ptr + row).to(tl.int64), begin + offset, length + begin
    position = length + offset
    anchor = tl.load(anchors_ptr + seat).to(tl.int64)
    if HAS_DRAFTS:
        index = position // BLOCK_SIZE
        owned = inside & (index < columns)
        block = tl.load(tables_ptr + seat * stride_table + index, mask=owned, other=0).to(tl.int64)
        drafted = tl.load(drafts_ptr + line * drafts + place - 1, mask=inside & (place > 0), other=0).to(tl.int64)
        token = tl.where(place == 0, anchor, tl.maximum(drafted, 0))
        slot = block * BLOCK_SIZE + position % BLOCK_SIZE
    else:
        token = tl.where(offset == 0, anchor, mask)
        slot = row * WIDTH + offset
    tl.store(ids_ptr + row * WIDTH + offset, token, mask=inside)
    if depths_ptr is not None:
        position = length + tl.load(depths_ptr + row * WIDTH + offset, mask=inside, other=0)
    tl.store(positions_ptr + row * WIDTH + offset, position, mask=inside)
    tl.store(slots_ptr + row * WIDTH + offset, slot, mask=inside)
    tl.store(lengths_ptr + row, length)
    tl.store(reach_ptr + row, length + WIDTH)
    if ranks_ptr is not None:
        rank = _rank(rows_ptr, length_ptr, offsets_ptr, row, length, batch, OTHERS)
        tl.store(ranks_ptr + 2 * rank, row.to(tl.int32))
        tl.store(ranks_ptr + 2 * rank + 1, length.to(tl.int32))
    for first in range(0, columns, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        exists = column < columns
        tl.store(
            table_ptr + row * columns + column,
            tl.load(tables_ptr + seat * stride_table + column, mask=exists, other=0),
            mask=exists,
        )


@triton.jit
def _rank(rows_ptr, length_ptr, offsets_ptr, row, length, batch, OTHERS: tl.constexpr):
    """Return how many rows are longer than one, or as long and before it."""
    longer = tl.zeros((OTHERS,), dtype=tl.int32)
    for first in range(0, batch, OTHERS):
        other = first + tl.arange(0, OTHERS)
        seated = other < batch
        seats = tl.load(rows_ptr + other, mask=seated, other=0).to(tl.int64)
        theirs = tl.load(length_ptr + seats, mask=seated, other=-1).to(tl.int64)
        if offsets_ptr is not None:
            theirs += tl.load(offsets_ptr + other, mask=seated, other=0)
        longer += ((theirs > length) | ((theirs == length) & (other < row))).to(tl.int32)
    return tl.sum(longer, 0)
