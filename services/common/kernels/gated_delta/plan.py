"""Where the rows of a span lie in blocks of absolute positions: computed once a forward and shared by its layers.

Suffixes: B sequences, S slots, T places of a sequence in its blocks and the convolution's rows before them, W rows of
the span, N rows written.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.kernels.torchscript import compiled

BLOCK = 16
"""Positions of a block; a state is stored only where one ends."""


class BlockPlan(NamedTuple):
    """One span in blocks, the first of each sequence beginning where its state ends.

    Flat rows count `slot * R + place in the ring`, or `sequence * W + row of the span`.
    """

    blocks: int
    """Of every sequence, as many as the longest needs."""
    slots_B: Tensor
    started_B: Tensor
    """Whether anything is folded; a state without is not read."""
    fold_B: Tensor
    """Blocks to fold now, and in `folds` on the host."""
    folds: list[int]
    folded_B: Tensor
    """Positions that the state holds after it."""
    ring_T: Tensor
    """Row of the ring for each place, and in `span_T` row of the span."""
    span_T: Tensor
    fresh_BT1: Tensor
    """Whether a place's row comes from the span."""
    live_BT1: Tensor
    """Whether a place has a row."""
    out_T: Tensor
    """Place in the blocks of each row of the span."""
    kept_N: Tensor
    """Rows of the span that go to rows `ring_N` of the ring."""
    ring_N: Tensor


def ring_rows(width: int, taps: int) -> int:
    """Return R, the rows of a slot's ring for spans of up to `width`.

    Read at once are the convolution's rows, a block and a span that are not folded yet; written is one span beyond.
    """
    return taps - 1 + BLOCK + 2 * width


def _plan(
    slots_B: Tensor, lengths_B: Tensor, folded_B: Tensor, valid_B: Tensor | None, width: int, ring: int, taps: int,
    block: int = BLOCK,
) -> BlockPlan:  # fmt: skip
    slots_B = slots_B.long()
    valid_of_B = torch.full_like(lengths_B, width) if valid_B is None else valid_B
    sure_B = torch.zeros_like(lengths_B) if valid_B is None else valid_B
    reach_B, length_B1, count = lengths_B + valid_of_B, lengths_B[:, None], lengths_B.shape[0]
    blocks = max(1, (int((reach_B - folded_B).max()) + block - 1) // block)
    position_BT = folded_B[:, None] + torch.arange(1 - taps, block * blocks)
    row_BT = (position_BT - length_B1).clamp(0, width - 1)
    fold_B = ((lengths_B + sure_B) // block - folded_B // block).clamp(min=0)
    folds: list[int] = fold_B.tolist()
    row_W = torch.arange(width)
    place_BW = (length_B1 - folded_B[:, None] + row_W).clamp(max=block * blocks - 1)
    kept_BW = (row_W < valid_of_B[:, None]) & (row_W >= valid_of_B[:, None] - ring)
    kept_N = kept_BW.flatten().nonzero().flatten()
    ring_BW = slots_B[:, None] * ring + (length_B1 + row_W) % ring
    first_B1 = torch.arange(count)[:, None]
    return BlockPlan(
        blocks, slots_B, folded_B > 0, fold_B, folds, folded_B + block * fold_B,
        (slots_B[:, None] * ring + position_BT % ring).flatten(), (first_B1 * width + row_BT).flatten(),
        (position_BT >= length_B1)[:, :, None],
        ((position_BT >= 0) & (position_BT < reach_B[:, None]))[:, :, None],
        (first_B1 * (block * blocks) + place_BW).flatten(), kept_N, ring_BW.flatten().index_select(0, kept_N),
    )  # fmt: skip


_plan_compiled = compiled(_plan)


def plan_blocks(
    slots_B: Tensor, lengths_B: Tensor, folded_B: Tensor, valid_B: Tensor | None, width: int, ring: int, taps: int
) -> BlockPlan:
    """Plan spans of `width` rows that begin at each sequence's length; its state holds what is below `folded_B`.

    With `valid_B` so many rows are real and certain to stay, as in a prompt: blocks that they complete are folded.
    Without it all are real and none is certain, as in a verify: only what lies below the length is folded.
    """
    return _plan_compiled(slots_B, lengths_B, folded_B, valid_B, width, ring, taps)
