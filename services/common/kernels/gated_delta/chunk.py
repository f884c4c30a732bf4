"""Chunks of prompts: all blocks are prepared side by side, then each head goes through them in order."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.gated_delta.block import advanced, coupled, decays, read, updates
from services.common.kernels.gated_delta.norm import store_read
from services.common.kernels.gated_delta.project import cleaned, convolved, gates, sequence_of, unit
from services.common.kernels.gated_delta.ring import keep_rows
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def prepare_kernel(
    into_ptr, ring_ptr, conv_ptr, decay_ptr, bias_ptr, slots_ptr, lengths_ptr, folded_ptr, valid_ptr, qk_ptr, v_ptr,
    square_ptr, rate_ptr, stride_channel, stride_tap, scale,
    WIDTH: tl.constexpr, RING: tl.constexpr, TAPS: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr,
    K_DIM: tl.constexpr, V_DIM: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr, BLOCKS: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write of a block q and k, v, its inverse and reads, and beta and decays; grid (BLOCKS, Hk, B)."""
    block, k_head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, _ = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, WIDTH)
    start, row, key, column = folded + block * 16, tl.arange(0, 16), tl.arange(0, K_DIM), tl.arange(0, V_DIM)
    position, group = start + row, HEADS // K_HEADS
    await_previous(PDL)
    allow_next(PDL)
    if start < reach:
        k = unit(convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            (K_HEADS + k_head) * K_DIM + key, WIDTH, RING, TAPS, FEATURES, KEPT,
        ))  # fmt: skip
        q = unit(convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            k_head * K_DIM + key, WIDTH, RING, TAPS, FEATURES, KEPT,
        )) * scale  # fmt: skip
        q, k = cleaned(q, k)
        at = (sequence * BLOCKS + block) * K_HEADS + k_head
        tile = row[:, None] * K_DIM + key[None, :]
        tl.store(qk_ptr + at * (32 * K_DIM) + tile, q)
        tl.store(qk_ptr + at * (32 * K_DIM) + 16 * K_DIM + tile, k)
        gram = tl.dot(k, tl.trans(k), input_precision=PRECISION)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        for member in range(group):
            head = k_head * group + member
            values = convolved(
                into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
                2 * K_HEADS * K_DIM + head * V_DIM + column, WIDTH, RING, TAPS, FEATURES, KEPT,
            )  # fmt: skip
            beta, units, ill = gates(
                into_ptr, ring_ptr, decay_ptr, bias_ptr, slot, sequence, length, reach, position, head,
                HEADS, WIDTH, RING, FEATURES, KEPT,
            )  # fmt: skip
            since, until, between = decays(units)
            solved, reads = coupled(gram, scores, beta, between)
            own = at * group + member
            tl.store(v_ptr + own * (16 * V_DIM) + row[:, None] * V_DIM + column[None, :], values + ill[:, None])
            square = row[:, None] * 16 + row[None, :]
            tl.store(square_ptr + own * 512 + square, solved)
            tl.store(square_ptr + own * 512 + 256 + square, reads)
            tl.store(rate_ptr + own * 64 + row, beta)
            tl.store(rate_ptr + own * 64 + 16 + row, since)
            tl.store(rate_ptr + own * 64 + 32 + row, until)


@triton.jit
def _prepared(
    qk_ptr, v_ptr, square_ptr, rate_ptr, at, head, key, column, there,
    K_HEADS: tl.constexpr, HEADS: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr,
):  # fmt: skip
    """Return what one block of a head was prepared to; zeros where there is none."""
    row, own, shared = tl.arange(0, 16), at * HEADS + head, at * K_HEADS + head // (HEADS // K_HEADS)
    tile, square = row[:, None] * K_DIM + key[None, :], row[:, None] * 16 + row[None, :]
    tall = tl.full((16, 1), 0, tl.int32) + there > 0
    flat = tl.full((16,), 0, tl.int32) + there > 0
    q = tl.load(qk_ptr + shared * (32 * K_DIM) + tile, mask=tall, other=0.0)
    k = tl.load(qk_ptr + shared * (32 * K_DIM) + 16 * K_DIM + tile, mask=tall, other=0.0)
    v = tl.load(v_ptr + own * (16 * V_DIM) + row[:, None] * V_DIM + column[None, :], mask=tall, other=0.0)
    solved = tl.load(square_ptr + own * 512 + square, mask=tall, other=0.0)
    reads = tl.load(square_ptr + own * 512 + 256 + square, mask=tall, other=0.0)
    beta = tl.load(rate_ptr + own * 64 + row, mask=flat, other=0.0)
    since = tl.load(rate_ptr + own * 64 + 16 + row, mask=flat, other=0.0)
    until = tl.load(rate_ptr + own * 64 + 32 + row, mask=flat, other=0.0)
    whole = tl.load(rate_ptr + own * 64 + 31, mask=there > 0, other=0.0)
    return q, k, v, solved, reads, beta, since, until, whole


@triton.jit
def scan_kernel(
    into_ptr, ring_ptr, state_ptr, norm_ptr, slots_ptr, lengths_ptr, folded_ptr, valid_ptr, qk_ptr, v_ptr, square_ptr,
    rate_ptr, out_ptr, eps,
    WIDTH: tl.constexpr, RING: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr, K_DIM: tl.constexpr,
    V_DIM: tl.constexpr, COLUMNS: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr, BLOCKS: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what the rows of a span read, keep the last, and fold complete blocks; grid (Hv, Dv / COLUMNS, B)."""
    PARTS: tl.constexpr = V_DIM // COLUMNS
    head, part, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, sure = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, WIDTH)
    key, column = tl.arange(0, K_DIM), part * COLUMNS + tl.arange(0, COLUMNS)
    place = ((slot * HEADS + head) * K_DIM + key[:, None]) * V_DIM + column[None, :]
    started = tl.full((K_DIM, COLUMNS), 0, tl.int32) + folded > 0
    state = tl.load(state_ptr + place, mask=started, other=0.0)
    await_previous(PDL)
    fold, first, count = sure // 16 * 16, sequence * BLOCKS, tl.cdiv(reach - folded, 16)
    following = _prepared(
        qk_ptr, v_ptr, square_ptr, rate_ptr, first, head, key, column, tl.minimum(count, 1), K_HEADS, HEADS, K_DIM,
        V_DIM,
    )  # fmt: skip
    for block in range(count):
        q, k, v, solved, reads, beta, since, until, whole = following
        # The loads of the next block pass while this one is computed.
        following = _prepared(
            qk_ptr, v_ptr, square_ptr, rate_ptr, first + block + 1, head, key, column,
            (block + 1 < count).to(tl.int32), K_HEADS, HEADS, K_DIM, V_DIM,
        )  # fmt: skip
        start = folded + block * 16
        update = updates(k, v, beta, since, solved, state, PRECISION)
        if start + 16 > length:
            out = read(q, v, since, reads, update, state, PRECISION)
            store_read(
                out, out_ptr, into_ptr, norm_ptr, sequence, head, start - length, reach - length, column, eps,
                HEADS, V_DIM, WIDTH, FEATURES, KEPT, PARTS == 1,
            )  # fmt: skip
        state = advanced(k, until, whole, update, state, PRECISION)
        if start + 16 == fold:
            tl.store(state_ptr + place, state)
    allow_next(PDL)
    rest = tl.zeros((16, COLUMNS), dtype=tl.float32)
    for start in range(folded + count * 16, length + WIDTH, 16):
        store_read(
            rest, out_ptr, into_ptr, norm_ptr, sequence, head, start - length, reach - length, column, eps,
            HEADS, V_DIM, WIDTH, FEATURES, KEPT, False,
        )  # fmt: skip
    keep_rows(
        into_ptr, ring_ptr, slot, sequence, length, reach, head * PARTS + part, HEADS * PARTS, WIDTH, RING, FEATURES,
        KEPT,
    )  # fmt: skip
