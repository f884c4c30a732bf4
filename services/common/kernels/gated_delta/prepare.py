"""Prepares blocks of rows side by side: all that a block's reads and its states need and that no state enters."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import finite
from services.common.kernels.gated_delta.block import coupled, decays, product
from services.common.kernels.gated_delta.halves import TILE_SCALE, halves, scales, times
from services.common.kernels.gated_delta.project import cleaned, convolved, gates, sequence_of, unit_rows
from services.common.kernels.gated_delta.ring import keep_rows
from services.common.kernels.pdl import allow_next, await_previous

_UP = tl.constexpr(1048576.0)
"""What `scales` leaves to be undone where a tile's rows are scaled by it, and not by `TILE_SCALE`."""


@triton.jit
def wanted_rows(start, length, reach, fold):
    """Return which rows of a block's two tiles [32] a program needs, and whether a state goes through the block.

    The first 16 are what the state is moved by: a whole block's. The last 16 read the state: rows of the span.
    """
    line = tl.arange(0, 32)
    at = start + line - 16
    through = (start + 16 < reach) | (start + 16 == fold)
    return (line < 16) & through | (line >= 16) & (at >= length) & (at < reach), through


@triton.jit
def store_halves(x, to_ptr, at, apart: tl.constexpr, mask):
    """Store the halves of a tile, `apart` elements from each other."""
    high, low = halves(x * TILE_SCALE)
    tl.store(to_ptr + at, high, mask=mask)
    tl.store(to_ptr + at + apart, low, mask=mask)


@triton.jit
def factored(weights, since, k_high, k_low, v_high, v_low, down):
    """Return what 16 weighted sums of a block's updates have of its start: factors [16, Dk], and the rest [16, Dv].

    An update is of `factors S0 + rest` what its row of the inverse weighs, a read what all its rows read of updates do.
    """
    factors = product(weights * (-since)[None, :], k_high, k_low)
    return factors, times(weights * (down * _UP)[None, :], v_high, v_low)


@triton.jit(do_not_specialize=["width", "blocks"])
def prepare_kernel(
    into_ptr, ring_ptr, conv_ptr, decay_ptr, bias_ptr, slots_ptr, lengths_ptr, folded_ptr, valid_ptr,
    factor_ptr, base_ptr, key_ptr, rate_ptr, stride_channel, stride_tap, width, blocks, scale,
    RING: tl.constexpr, TAPS: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr,
    K_DIM: tl.constexpr, V_DIM: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    FEW: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write factors and bases, keys and rates of a block, and keep a round's rows; grid (blocks, Hv, B)."""
    block, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, sure = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, width)
    k_head = head // (HEADS // K_HEADS)
    start, row, depth, column = folded + block * 16, tl.arange(0, 16), tl.arange(0, K_DIM), tl.arange(0, V_DIM)
    position = start + row
    through = (start + 16 < reach) | (start + 16 == sure // 16 * 16)
    read = (position >= length) & (position < reach)
    await_previous(PDL)
    allow_next(PDL)
    if start < reach:
        # All loads come first, so that they wait for memory together.
        keys = convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            (K_HEADS + k_head) * K_DIM + depth, width, RING, TAPS, FEATURES, KEPT,
        )  # fmt: skip
        queries = convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            k_head * K_DIM + depth, width, RING, TAPS, FEATURES, KEPT,
        )  # fmt: skip
        values = convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            2 * K_HEADS * K_DIM + head * V_DIM + column, width, RING, TAPS, FEATURES, KEPT,
        )  # fmt: skip
        beta, units, ill = gates(
            into_ptr, ring_ptr, decay_ptr, bias_ptr, slot, sequence, length, reach, position, head,
            HEADS, width, RING, FEATURES, KEPT,
        )  # fmt: skip
        q, k, ill_row = cleaned(unit_rows(queries, scale), unit_rows(keys, 1.0))
        at = sequence * blocks + block
        tile = row[:, None] * K_DIM + depth[None, :]
        k_high, k_low = halves(k * TILE_SCALE)
        gram = product(k, tl.trans(k_high), tl.trans(k_low))
        scores = product(q, tl.trans(k_high), tl.trans(k_low))
        since, until, between = decays(units)
        solved, reads = coupled(gram, scores, beta, between)
        up, down = scales(tl.where(finite(values), values, 0.0))
        v_high, v_low = halves(tl.where(finite(values), values, 0.0) * up[:, None])
        own, over = at * HEADS + head, row[:, None] * V_DIM + column[None, :]
        weights = solved * beta[None, :]
        read_weights = tl.dot(reads, weights, input_precision="ieee")
        meets, met = factored(read_weights, since, k_high, k_low, v_high, v_low, down)
        meets += q * since[:, None]
        met += (ill + ill_row + tl.sum(values * 0.0, 1))[:, None]
        store_halves(meets, factor_ptr + own * (64 * K_DIM) + 16 * K_DIM, tile, 32 * K_DIM, read[:, None])
        tl.store(base_ptr + own * (32 * V_DIM) + 16 * V_DIM + over, met, mask=read[:, None])
        if through:
            moves, moved = factored(weights, since, k_high, k_low, v_high, v_low, down)
            store_halves(moves, factor_ptr + own * (64 * K_DIM), tile, 32 * K_DIM, None)
            tl.store(base_ptr + own * (32 * V_DIM) + over, moved)
            if head % (HEADS // K_HEADS) == 0:
                store_halves(k, key_ptr + (at * K_HEADS + k_head) * (32 * K_DIM), tile, 16 * K_DIM, None)
            whole = tl.sum(tl.where(row == 15, since, 0.0), 0)
            tl.store(rate_ptr + own * 32 + row, until)
            tl.store(rate_ptr + own * 32 + 16, whole)
    # The ring has room for a round's rows beside all that are read; the last block is seldom there.
    if FEW and block == blocks - 1:
        keep_rows(into_ptr, ring_ptr, slot, sequence, length, reach, head, HEADS, width, RING, FEATURES, KEPT)
