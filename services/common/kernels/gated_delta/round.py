"""Rounds: one program takes the columns of a head through its few blocks, and prepares each block itself."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import from_units
from services.common.kernels.gated_delta.block import advanced, coupled, decays, read, updates
from services.common.kernels.gated_delta.norm import store_read
from services.common.kernels.gated_delta.project import cleaned, convolved, gates, sequence_of, unit
from services.common.kernels.gated_delta.ring import keep_rows
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def round_kernel(
    into_ptr, ring_ptr, state_ptr, conv_ptr, decay_ptr, bias_ptr, norm_ptr, slots_ptr, lengths_ptr, folded_ptr,
    valid_ptr, out_ptr, stride_channel, stride_tap, eps, scale,
    WIDTH: tl.constexpr, RING: tl.constexpr, TAPS: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr,
    K_DIM: tl.constexpr, V_DIM: tl.constexpr, COLUMNS: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what the rows of a span read, keep them, and fold complete blocks; grid (Hv, Dv / COLUMNS, B).

    The span is at most the widest round: no row that is read here is where another program keeps one.
    """
    PARTS: tl.constexpr = V_DIM // COLUMNS
    head, part, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, sure = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, WIDTH)
    key, column = tl.arange(0, K_DIM), part * COLUMNS + tl.arange(0, COLUMNS)
    q_column = head // (HEADS // K_HEADS) * K_DIM + key
    v_column = 2 * K_HEADS * K_DIM + head * V_DIM + column
    place = ((slot * HEADS + head) * K_DIM + key[:, None]) * V_DIM + column[None, :]
    # No kernel of this forward has written the state, nor rows before the span.
    started = tl.full((K_DIM, COLUMNS), 0, tl.int32) + folded > 0
    state = tl.load(state_ptr + place, mask=started, other=0.0)
    await_previous(PDL)
    fold = (sure // 16) * 16
    for start in range(folded, reach, 16):
        position = start + tl.arange(0, 16)
        k = unit(convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            K_HEADS * K_DIM + q_column, WIDTH, RING, TAPS, FEATURES, KEPT,
        ))  # fmt: skip
        q = unit(convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            q_column, WIDTH, RING, TAPS, FEATURES, KEPT,
        )) * scale  # fmt: skip
        values = convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            v_column, WIDTH, RING, TAPS, FEATURES, KEPT,
        )  # fmt: skip
        beta, units, ill = gates(
            into_ptr, ring_ptr, decay_ptr, bias_ptr, slot, sequence, length, reach, position, head,
            HEADS, WIDTH, RING, FEATURES, KEPT,
        )  # fmt: skip
        q, k = cleaned(q, k)
        v = values + ill[:, None]
        since, until, between = decays(units)
        gram = tl.dot(k, tl.trans(k), input_precision=PRECISION)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        solved, reads = coupled(gram, scores, beta, between)
        update = updates(k, v, beta, since, solved, state, PRECISION)
        if start + 16 > length:
            out = read(q, v, since, reads, update, state, PRECISION)
            store_read(
                out, out_ptr, into_ptr, norm_ptr, sequence, head, start - length, reach - length, column, eps,
                HEADS, V_DIM, WIDTH, FEATURES, KEPT, PARTS == 1,
            )  # fmt: skip
        if (start + 16 < reach) | (start + 16 == fold):
            whole = tl.exp(from_units(tl.sum(units, 0)))
            state = advanced(k, until, whole, update, state, PRECISION)
            if start + 16 == fold:
                tl.store(state_ptr + place, state)
    allow_next(PDL)
    if valid_ptr is not None:
        rest = tl.zeros((16, COLUMNS), dtype=tl.float32)
        for start in range(folded + tl.cdiv(reach - folded, 16) * 16, length + WIDTH, 16):
            store_read(
                rest, out_ptr, into_ptr, norm_ptr, sequence, head, start - length, reach - length, column, eps,
                HEADS, V_DIM, WIDTH, FEATURES, KEPT, False,
            )  # fmt: skip
    keep_rows(
        into_ptr, ring_ptr, slot, sequence, length, reach, head * PARTS + part, HEADS * PARTS, WIDTH, RING, FEATURES,
        KEPT,
    )  # fmt: skip
