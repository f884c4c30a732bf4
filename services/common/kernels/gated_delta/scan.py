"""Takes the columns of each head through its blocks in order: what rows read, and states at boundaries."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

from services.common.kernels.gated_delta.block import loaded, store_state
from services.common.kernels.gated_delta.halves import times
from services.common.kernels.gated_delta.norm import gated_by, store_read
from services.common.kernels.gated_delta.prepare import wanted_rows
from services.common.kernels.gated_delta.project import sequence_of
from services.common.kernels.gated_delta.ring import keep_rows
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def prepared(factor_ptr, base_ptr, own, wanted, column, K_DIM: tl.constexpr, V_DIM: tl.constexpr):
    """Return a block's factors as halves [Dk, 32], and its bases [columns, 32]; rows that are not wanted are zero."""
    line, depth = tl.arange(0, 32), tl.arange(0, K_DIM)
    tile = factor_ptr + own * (64 * K_DIM) + line[None, :] * K_DIM + depth[:, None]
    high = tl.load(tile, mask=wanted[None, :], other=0.0)
    low = tl.load(tile + 32 * K_DIM, mask=wanted[None, :], other=0.0)
    base_at = base_ptr + own * (32 * V_DIM) + line[None, :] * V_DIM + column[:, None]
    return high, low, tl.load(base_at, mask=wanted[None, :], other=0.0)


@triton.jit
def read_block(
    state, factor_ptr, base_ptr, out_ptr, into_ptr, norm_ptr, eps, sequence, head, start, own, length, reach, fold,
    column, width, HEADS: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, FEATURES: tl.constexpr,
    KEPT: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """Write what rows of a block read; return the block's updates beside it, and whether a state goes through.

    All loads come before the first product, so that they wait for memory together.
    """
    wanted, through = wanted_rows(start, length, reach, fold)
    high, low, base = prepared(factor_ptr, base_ptr, own, wanted, column, K_DIM, V_DIM)
    z, weight = gated_by(
        into_ptr, norm_ptr, sequence, head, start - length, reach - length, column, width,
        V_DIM, FEATURES, KEPT, NORMED,
    )  # fmt: skip
    found = times(state, high, low) + base
    store_read(
        found, z, weight, out_ptr, eps, sequence, head, start - length, reach - length, column, HEADS, V_DIM, NORMED,
        width,
    )  # fmt: skip
    return found, through


@triton.jit
def advanced(state, found, whole, key_ptr, rate_ptr, key, own, K_DIM: tl.constexpr):
    """Return the state after a block, whose updates are the first half of what was found."""
    line, depth = tl.arange(0, 32), tl.arange(0, K_DIM)
    tile = key_ptr + key * (32 * K_DIM) + line[:, None] * K_DIM + depth[None, :]
    updates = line < 16
    high = tl.load(tile, mask=updates[:, None], other=0.0)
    low = tl.load(tile + 16 * K_DIM, mask=updates[:, None], other=0.0)
    until = tl.load(rate_ptr + own * 32 + line, mask=updates, other=0.0)
    # What rows read may be NaN: it must not meet even a zero.
    update = tl.where(updates[None, :], found * until[None, :], 0.0)
    return state * whole + times(update, high, low)


@triton.jit(do_not_specialize=["width", "blocks"])
def scan_kernel(
    into_ptr, ring_ptr, state_ptr, norm_ptr, slots_ptr, lengths_ptr, folded_ptr, valid_ptr, factor_ptr, base_ptr,
    key_ptr, rate_ptr, out_ptr, width, blocks, eps,
    RING: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr, K_DIM: tl.constexpr,
    V_DIM: tl.constexpr, COLUMNS: tl.constexpr, NORMED: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    FEW: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what the rows of a span read, keep a chunk's last, and fold complete blocks; grid (Hv, Dv / COLUMNS, B).

    A program that has all columns of a head may norm and gate what rows read. No state is computed that is not needed.
    """
    PARTS: tl.constexpr = V_DIM // COLUMNS
    head, part, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, sure = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, width)
    column, k_head = part * COLUMNS + tl.arange(0, COLUMNS), head // (HEADS // K_HEADS)
    place = (slot * HEADS + head) * (K_DIM * V_DIM) + column
    # No kernel of this forward has written the state.
    state = loaded(state_ptr, place, folded, K_DIM, V_DIM)
    fold = sure // 16 * 16
    last = tl.maximum(tl.cdiv(reach - folded, 16) - 1, 0)
    await_previous(PDL)
    for block in range(last):
        start, at = folded + block * 16, sequence * blocks + block
        whole = tl.load(rate_ptr + (at * HEADS + head) * 32 + 16)
        found, _ = read_block(
            state, factor_ptr, base_ptr, out_ptr, into_ptr, norm_ptr, eps, sequence, head, start, at * HEADS + head,
            length, reach, fold, column, width, HEADS, K_DIM, V_DIM, FEATURES, KEPT, NORMED,
        )  # fmt: skip
        state = advanced(state, found, whole, key_ptr, rate_ptr, at * K_HEADS + k_head, at * HEADS + head, K_DIM)
        if start + 16 == fold:
            store_state(state, state_ptr, place, K_DIM, V_DIM)
    start, at = folded + last * 16, sequence * blocks + last
    whole = tl.load(rate_ptr + (at * HEADS + head) * 32 + 16)
    found, through = read_block(
        state, factor_ptr, base_ptr, out_ptr, into_ptr, norm_ptr, eps, sequence, head, start, at * HEADS + head,
        length, reach, fold, column, width, HEADS, K_DIM, V_DIM, FEATURES, KEPT, NORMED,
    )  # fmt: skip
    allow_next(PDL)
    if through:
        state = advanced(state, found, whole, key_ptr, rate_ptr, at * K_HEADS + k_head, at * HEADS + head, K_DIM)
        store_state(state, state_ptr, place, K_DIM, V_DIM)
    if not FEW:
        keep_rows(
            into_ptr, ring_ptr, slot, sequence, length, reach, head * PARTS + part, HEADS * PARTS, width, RING,
            FEATURES, KEPT,
        )  # fmt: skip
