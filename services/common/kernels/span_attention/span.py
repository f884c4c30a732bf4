"""Positions, slots and masks of a span's rows: computed once a forward and shared by its layers."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from services.common.kernels.span_attention.host_span import (
    causal_on_cpu,
    context_on_cpu,
    grown_on_cpu,
    windowed_on_cpu,
    written_on_cpu,
)

_BITS = 64


@dataclass(frozen=True)
class Mask:
    """How far back rows see, and which rows of their own span they see.

    `window` counts positions, the row's own included; 0 means no limit. Bit i of row j in `ancestors_BW`, int64, lets
    row j see row i of its span, i <= j: in a tree the rows it descends from and itself. The position of such a row is
    the context's length plus its ancestors, `depths_BW`, and a window must hold the whole span. Without `ancestors_BW`
    rows see the rows before them, and all rows of a block that is not `causal`. For a GPU `lineage_BWW`, int32,
    says the same: the row of a row's ancestor at each depth, itself at its own. With it a row has the bits that its
    path has as a chain.
    """

    window: int = 0
    ancestors_BW: Tensor | None = None
    causal: bool = False
    lineage_BWW: Tensor | None = None
    depths_BW: Tensor | None = None

    @property
    def is_open(self) -> bool:
        """Whether the mask hides nothing."""
        return not self.window and self.ancestors_BW is None and not self.causal


OPEN = Mask()


def masked_bias(places_BT: Tensor, lengths_B: Tensor, positions_BW: Tensor, mask: Mask, causal: bool) -> Tensor:
    """Return the bias `[B, 1, W, T]`: zero where a row sees a place, -inf elsewhere; no row sees a place below zero."""
    width = positions_BW.shape[1]
    places_B1T = places_BT.expand(len(lengths_B), -1)[:, None]
    offset_B1T = places_B1T - lengths_B[:, None, None]
    if mask.ancestors_BW is not None:
        own_BWT = (mask.ancestors_BW[:, :, None] >> offset_B1T.clamp(0, _BITS - 1)) & 1 != 0
    else:
        last_W1 = torch.arange(width)[:, None] if causal or mask.causal else torch.full((width, 1), width - 1)
        own_BWT = offset_B1T <= last_W1
    own_BWT = own_BWT & (offset_B1T >= 0) & (offset_B1T < width)
    past_BWT = (places_B1T >= 0) & (offset_B1T < 0)
    if mask.window:
        near_BWT = places_B1T > positions_BW[:, :, None] - mask.window
        past_BWT = past_BWT & near_BWT
        # A row of a tree is stored at another place than its position.
        own_BWT = own_BWT & (near_BWT if mask.ancestors_BW is None else True)
    return torch.zeros(own_BWT.shape).masked_fill_(~(past_BWT | own_BWT), float("-inf"))[:, None]


@dataclass(frozen=True)
class Span:
    """Rows at positions length .. length + W - 1 of B sequences; those below `reach_B` are real, the rest padding.

    `slots_T` are flat write indices `block * S + offset`; rows without a block get one in the pad block. A drafter's
    block is written to no pool; its `slots_T` count its rows. `gather_BT` and `bias_B1WT` serve the CPU path alone:
    flat read indices of the used blocks, and zero or -inf per row and position (None when every row sees every
    position). `short` tells a GPU that contexts are likely short; it changes no bit. Neither do `ranks_B2` [B, 2],
    int32, which a target's rounds have on a GPU: sequences from the longest to the shortest, each with its length.
    Of rows that lie `side_by_side` several sequences may be pieces of one: then a later piece reads what an earlier one
    writes in the same forward, and what stands before a span is not final when the kernel in front of attention begins.
    """

    block_table_BN: Tensor
    lengths_B: Tensor
    reach_B: Tensor
    width: int
    block_size: int
    positions_BW: Tensor
    slots_T: Tensor
    gather_BT: Tensor | None
    bias_B1WT: Tensor | None
    mask: Mask = OPEN
    short: bool = False
    ranks_B2: Tensor | None = None
    side_by_side: bool = False

    @property
    def count(self) -> int:
        """How many rows it has."""
        return self.positions_BW.numel()

    @property
    def read_BT(self) -> Tensor:
        """The indices that the CPU path reads."""
        assert self.gather_BT is not None, "a span for the CPU path is planned on the CPU"
        return self.gather_BT


def plan_span(
    block_table_BN: Tensor,
    lengths_B: Tensor,
    width: int,
    block_size: int,
    valid_B: Tensor | None = None,
    mask: Mask = OPEN,
) -> Span:
    """Plan rows that write their own K/V and attend causally, or as the mask says.

    Rows from `valid_B` on (all are valid without it) write to the pad block; so do positions past the block table.
    Sequences may be pieces of one, as a prompt's segments are.
    """
    gather_BT, bias_B1WT = None, None
    if lengths_B.is_cuda:
        from services.common.kernels.span_attention.placement import place_span

        positions_BW, slots_T, reach_B = place_span(block_table_BN, lengths_B, width, block_size, valid_B)
    else:
        positions_BW, slots_T, reach_B = written_on_cpu(block_table_BN, lengths_B, width, block_size, valid_B)
    if mask.depths_BW is not None:
        positions_BW = lengths_B[:, None] + mask.depths_BW
    if not lengths_B.is_cuda:
        if mask.ancestors_BW is None:
            gather_BT, bias_B1WT = causal_on_cpu(block_table_BN, positions_BW, reach_B, block_size)
        else:
            gather_BT, bias_B1WT = grown_on_cpu(block_table_BN, lengths_B, reach_B, block_size, mask.ancestors_BW)
        if mask.window:
            bias_B1WT = masked_bias(torch.arange(gather_BT.shape[1]), lengths_B, positions_BW, mask, causal=True)
    return Span(
        block_table_BN, lengths_B, reach_B, width, block_size, positions_BW, slots_T, gather_BT, bias_B1WT, mask,
        side_by_side=True,
    )  # fmt: skip


def plan_context(block_table_BN: Tensor, lengths_B: Tensor, width: int, block_size: int) -> Span:
    """Plan rows that write to no block and attend to the positions below their length and to one another."""
    positions_BW = lengths_B[:, None] + torch.arange(width, device=lengths_B.device)
    gather_BT, bias_B1WT = None, None
    if not lengths_B.is_cuda:
        gather_BT, bias_B1WT = context_on_cpu(block_table_BN, lengths_B, width, block_size)
    reach_B, slots_T = lengths_B + width, torch.arange(positions_BW.numel(), device=lengths_B.device)
    return Span(block_table_BN, lengths_B, reach_B, width, block_size, positions_BW, slots_T, gather_BT, bias_B1WT)


def seen_through(span: Span, mask: Mask) -> Span:
    """Return a drafter's block as the layers with a mask see it; one plan serves layers of all kinds."""
    if mask.is_open:
        return span
    bias_B1WT = None
    if span.gather_BT is not None:
        bias_B1WT = _masked_context(span.gather_BT.shape[1], span.lengths_B, span.positions_BW, mask)
    return replace(span, bias_B1WT=bias_B1WT, mask=mask)


def placed(span: Span, places_N: Tensor) -> Span:
    """Return a span whose blocks lie elsewhere: where `places_N` says, 0 being the pad block.

    What is read on a CPU is not known any more: `seen_within` finds it.
    """
    if places_N.is_cuda and span.block_table_BN.is_contiguous():
        from services.common.kernels.span_attention.placement import place_near

        slots_T, near_BN = place_near(span.slots_T, span.block_table_BN, places_N, span.block_size)
        return replace(span, block_table_BN=near_BN, slots_T=slots_T)
    table_BN, blocks_T = span.block_table_BN, span.slots_T // span.block_size
    slots_T = torch.add(span.slots_T, places_N.index_select(0, blocks_T) - blocks_T, alpha=span.block_size)
    near_BN = places_N.index_select(0, table_BN.flatten()).view(table_BN.shape)
    return replace(span, block_table_BN=near_BN, slots_T=slots_T)


def seen_within(span: Span, window: int) -> Span:
    """Return a target's span as layers with a window see it, 0: without one; one plan serves layers of all kinds.

    On a CPU such layers read no place below their first row's window: what stood there may be gone.
    """
    if not window:
        return span
    mask = replace(span.mask, window=window)
    if span.gather_BT is None:
        return replace(span, mask=mask)
    places_BT, gather_BT = windowed_on_cpu(span.block_table_BN, span.lengths_B, span.reach_B, span.block_size, window)
    bias_B1WT = None
    if span.positions_BW.numel() > 1:
        # Rows of padding see what the last real one sees, so that none sees nothing.
        positions_BW = torch.minimum(span.positions_BW, span.reach_B[:, None] - 1)
        bias_B1WT = masked_bias(places_BT, span.lengths_B, positions_BW, mask, causal=True)
    return replace(span, gather_BT=gather_BT, bias_B1WT=bias_B1WT, mask=mask)


def _masked_context(count: int, lengths_B: Tensor, positions_BW: Tensor, mask: Mask) -> Tensor:
    """Return the bias over `count` gathered places and the block, which follows behind all of them."""
    places_T, width = torch.arange(count), positions_BW.shape[1]
    # Gathered places from a sequence's length on are another's.
    places_BT = torch.where(places_T < lengths_B[:, None], places_T, -1)
    places_BT = torch.cat((places_BT, lengths_B[:, None] + torch.arange(width)), 1)
    return masked_bias(places_BT, lengths_B, positions_BW, mask, causal=False)
