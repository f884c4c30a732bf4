"""Chunks of prompts: all blocks are prepared side by side, then each head goes through them in order."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

from services.common.kernels.gated_delta.block import (
    advanced,
    coupled,
    decays,
    loaded,
    met,
    moved,
    product,
    store_state,
)
from services.common.kernels.gated_delta.norm import store_read
from services.common.kernels.gated_delta.project import cleaned, convolved, gates, sequence_of, unit_rows
from services.common.kernels.gated_delta.ring import keep_rows
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit(do_not_specialize=["width", "blocks"])
def prepare_kernel(
    into_ptr, ring_ptr, conv_ptr, decay_ptr, bias_ptr, slots_ptr, lengths_ptr, folded_ptr, valid_ptr, qk_ptr, v_ptr,
    square_ptr, rate_ptr, stride_channel, stride_tap, width, blocks, scale,
    RING: tl.constexpr, TAPS: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr,
    K_DIM: tl.constexpr, V_DIM: tl.constexpr, PIECE: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write of a block q and k, v, its inverse and reads, and beta and decays; grid (blocks, Hk, B)."""
    block, k_head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, _ = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, width)
    PIECES: tl.constexpr = K_DIM // PIECE
    GROUP: tl.constexpr = HEADS // K_HEADS
    start, row, column = folded + block * 16, tl.arange(0, 16), tl.arange(0, V_DIM)
    position = start + row
    await_previous(PDL)
    allow_next(PDL)
    if start < reach:
        k = unit_rows(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            (K_HEADS + k_head) * K_DIM, 1.0, width, RING, TAPS, FEATURES, KEPT, K_DIM, PIECE,
        )  # fmt: skip
        q = unit_rows(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            k_head * K_DIM, scale, width, RING, TAPS, FEATURES, KEPT, K_DIM, PIECE,
        )  # fmt: skip
        q, k = cleaned(q, k, PIECES)
        at = (sequence * blocks + block) * K_HEADS + k_head
        for index in tl.static_range(PIECES):
            tile = at * (32 * K_DIM) + row[:, None] * K_DIM + index * PIECE + tl.arange(0, PIECE)[None, :]
            tl.store(qk_ptr + tile, q[index])
            tl.store(qk_ptr + tile + 16 * K_DIM, k[index])
        gram, scores = product(k, k, PIECES, PRECISION), product(q, k, PIECES, PRECISION)
        for member in range(GROUP):
            head = k_head * GROUP + member
            values = convolved(
                into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
                2 * K_HEADS * K_DIM + head * V_DIM + column, width, RING, TAPS, FEATURES, KEPT,
            )  # fmt: skip
            beta, units, ill = gates(
                into_ptr, ring_ptr, decay_ptr, bias_ptr, slot, sequence, length, reach, position, head,
                HEADS, width, RING, FEATURES, KEPT,
            )  # fmt: skip
            since, until, between = decays(units)
            solved, reads = coupled(gram, scores, beta, between)
            own = at * GROUP + member
            tl.store(v_ptr + own * (16 * V_DIM) + row[:, None] * V_DIM + column[None, :], values + ill[:, None])
            square = row[None, :] * 16 + row[:, None]
            tl.store(square_ptr + own * 512 + square, solved)
            tl.store(square_ptr + own * 512 + 256 + square, reads)
            tl.store(rate_ptr + own * 64 + row, beta)
            tl.store(rate_ptr + own * 64 + 16 + row, since)
            tl.store(rate_ptr + own * 64 + 32 + row, until)


@triton.jit
def _keys(qk_ptr, at, K_DIM: tl.constexpr, PIECE: tl.constexpr):
    """Return queries and keys of a block as they were prepared, in pieces."""
    queries, keys = (), ()
    for first in tl.static_range(0, K_DIM, PIECE):
        tile = at * (32 * K_DIM) + tl.arange(0, 16)[:, None] * K_DIM + first + tl.arange(0, PIECE)[None, :]
        queries = queries + (tl.load(qk_ptr + tile),)  # noqa: RUF005
        keys = keys + (tl.load(qk_ptr + tile + 16 * K_DIM),)  # noqa: RUF005
    return queries, keys


@triton.jit(do_not_specialize=["width", "blocks"])
def scan_kernel(
    into_ptr, ring_ptr, state_ptr, slots_ptr, lengths_ptr, folded_ptr, valid_ptr, qk_ptr, v_ptr, square_ptr, rate_ptr,
    read_ptr, width, blocks,
    RING: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr, K_DIM: tl.constexpr,
    V_DIM: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what the rows of a span read, keep the last, and fold complete blocks; grid (Hv, Dv / COLUMNS, B)."""
    PARTS: tl.constexpr = V_DIM // COLUMNS
    PIECES: tl.constexpr = K_DIM // PIECE
    head, part, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, sure = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, width)
    column, row = part * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, 16)
    place = (slot * HEADS + head) * (K_DIM * V_DIM) + column
    state = loaded(state_ptr, place, folded, K_DIM, V_DIM, PIECE)
    await_previous(PDL)
    fold, square = sure // 16 * 16, row[:, None] * 16 + row[None, :]
    for block in range(tl.cdiv(reach - folded, 16)):
        start, at = folded + block * 16, sequence * blocks + block
        own = at * HEADS + head
        q, k = _keys(qk_ptr, at * K_HEADS + head // (HEADS // K_HEADS), K_DIM, PIECE)
        v = tl.load(v_ptr + own * (16 * V_DIM) + row[None, :] * V_DIM + column[:, None])
        solved, reads = tl.load(square_ptr + own * 512 + square), tl.load(square_ptr + own * 512 + 256 + square)
        beta, since = tl.load(rate_ptr + own * 64 + row), tl.load(rate_ptr + own * 64 + 16 + row)
        until, whole = tl.load(rate_ptr + own * 64 + 32 + row), tl.load(rate_ptr + own * 64 + 31)
        seen, held = met(q, k, since, state, PIECES, PRECISION)
        out, update = moved(seen, held, v, beta, solved, reads, PRECISION)
        store_read(out, read_ptr, sequence, head, start - length, reach - length, column, HEADS, V_DIM, width)
        state = advanced(k, until, whole, update, state, PIECES, PRECISION)
        if start + 16 == fold:
            store_state(state, state_ptr, place, K_DIM, V_DIM, PIECE)
    allow_next(PDL)
    keep_rows(
        into_ptr, ring_ptr, slot, sequence, length, reach, head * PARTS + part, HEADS * PARTS, width, RING, FEATURES,
        KEPT,
    )  # fmt: skip
