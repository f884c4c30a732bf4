"""One launch on the GPU, a program a row. Bytes for B rows of K drafts: B (8 K + 20), and a sector for each draft."""

import triton
import triton.language as tl
from torch import Tensor

from services.common.device.noise import PURPOSE_SYNTHETIC
from services.common.kernels.accept import SlotState
from services.common.kernels.force_acceptance import LIFT
from services.common.kernels.nodes import Nodes
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.row_table import RowTable

_LIFT = tl.constexpr(LIFT)
_PURPOSE = tl.constexpr(PURPOSE_SYNTHETIC)


def force_acceptance(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    rates_K: Tensor,
    rows_B: Tensor,
    slots: SlotState,
    table: RowTable | None = None,
) -> None:
    """Raise or lower the scores of every row's drafts in place."""
    assert logits_BWV.is_contiguous(), "logits must be contiguous"
    assert drafts_BK.is_contiguous(), "drafts must be contiguous"
    (batch, drafts), vocab = drafts_BK.shape, logits_BWV.shape[2]
    kinds = rates_K.numel() // drafts
    firsts_B, takes_B = (None, None) if table is None else (table.firsts_B, table.takes_B)
    force_kernel[(batch,)](
        logits_BWV, drafts_BK, rates_K, rows_B, slots.seed_S, slots.length_S, firsts_B, takes_B, vocab, kinds,
        WIDTH=drafts + 1, WIDTH_PAD=triton.next_power_of_2(drafts + 1), PDL=PDL, num_warps=1,
        **LAUNCH,
    )  # fmt: skip


@triton.jit
def force_kernel(
    logits_ptr, drafts_ptr, rates_ptr, rows_ptr, seed_ptr, length_ptr, firsts_ptr, takes_ptr, vocab, kinds,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Draw a row's number and write the scores of its drafts."""
    allow_next(PDL)
    await_previous(PDL)
    row, offset = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH_PAD)
    known, first = offset < WIDTH - 1, row * WIDTH
    if firsts_ptr is not None:
        known, first = known & (offset < tl.load(takes_ptr + row)), tl.load(firsts_ptr + row).to(tl.int64)
    slot = tl.load(rows_ptr + row).to(tl.int64)
    position = tl.load(length_ptr + slot) + 1
    zero = tl.zeros((WIDTH_PAD,), dtype=tl.uint32)
    low, high = zero + (position & 0xFFFFFFFF).to(tl.uint32), zero + (position >> 32).to(tl.uint32)
    word, _, _, _ = tl.philox(tl.load(seed_ptr + slot), low, high, zero, zero + _PURPOSE)
    chance = (word >> 8).to(tl.float32) * 5.9604644775390625e-08
    draft = tl.maximum(tl.load(drafts_ptr + row * (WIDTH - 1) + offset, mask=known, other=0), 0)
    rate = tl.load(rates_ptr + slot % kinds * (WIDTH - 1) + offset, mask=known, other=0.0)
    lift = tl.where(chance < rate, _LIFT, -_LIFT)
    at = (first + offset) * vocab + draft
    score = lift.to(logits_ptr.dtype.element_ty)
    tl.store(logits_ptr + at, score, mask=known)


def force_nodes(
    logits_BWV: Tensor, drafts_BK: Tensor, edges_NDR: Tensor, rows_B: Tensor, slots: SlotState, nodes: Nodes,
) -> None:  # fmt: skip
    """Raise or lower the scores of every node in place."""
    assert logits_BWV.is_contiguous(), "logits must be contiguous"
    assert drafts_BK.is_contiguous() and edges_NDR.is_contiguous(), "drafts and edges must be contiguous"
    (batch, drafts), vocab = drafts_BK.shape, logits_BWV.shape[2]
    kinds, depth, places = edges_NDR.shape
    force_nodes_kernel[(batch,)](
        logits_BWV, drafts_BK, nodes.parents_BK, nodes.depths_BW, edges_NDR, rows_B, slots.seed_S, slots.length_S,
        vocab, kinds, depth, places, WIDTH=drafts + 1,
        WIDTH_PAD=triton.next_power_of_2(drafts + 1), PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip


@triton.jit
def force_nodes_kernel(
    logits_ptr, drafts_ptr, parents_ptr, depths_ptr, edges_ptr, rows_ptr, seed_ptr, length_ptr,
    vocab, kinds, depths, places, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Draw a number for each position of a tree and write the scores of its nodes in their parents' rows."""
    allow_next(PDL)
    await_previous(PDL)
    row, offset = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH_PAD)
    known = offset < WIDTH - 1
    slot = tl.load(rows_ptr + row).to(tl.int64)
    draft = tl.load(drafts_ptr + row * (WIDTH - 1) + offset, mask=known, other=-1)
    parent = tl.load(parents_ptr + row * (WIDTH - 1) + offset, mask=known, other=-1)
    depth = tl.load(depths_ptr + row * WIDTH + offset + 1, mask=known, other=1) - 1
    # Parents as those of columns: a row of the identity has one number.
    across = tl.sum(tl.where(offset[:, None] == offset[None, :], parent[:, None], 0), 0)
    earlier = (across[None, :] == parent[:, None]) & (offset[None, :] < offset[:, None])
    before = tl.sum(earlier.to(tl.int32), 1)
    position = tl.load(length_ptr + slot) + 1 + depth
    zero = tl.zeros((WIDTH_PAD,), dtype=tl.uint32)
    low, high = (position & 0xFFFFFFFF).to(tl.uint32), (position >> 32).to(tl.uint32)
    word, _, _, _ = tl.philox(tl.load(seed_ptr + slot), low, high, zero, zero + _PURPOSE)
    chance = (word >> 8).to(tl.float32) * 5.9604644775390625e-08
    reached = known & (depth < depths) & (before < places)
    at = edges_ptr + (slot % kinds * depths + depth) * places + before
    least = tl.load(at - 1, mask=reached & (before > 0), other=0.0)
    most = tl.load(at, mask=reached, other=0.0)
    lift = tl.where(reached & (least <= chance) & (chance < most), _LIFT, -_LIFT)
    score, there = lift.to(logits_ptr.dtype.element_ty), known & (draft >= 0)
    line = row * WIDTH + parent
    tl.store(logits_ptr + line * vocab + draft, score, mask=there)
