"""Rounds: one program takes the columns of a head through its few blocks, and prepares each block itself."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import from_units
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


@triton.jit(do_not_specialize=["width"])
def round_kernel(
    into_ptr, ring_ptr, state_ptr, conv_ptr, decay_ptr, bias_ptr, slots_ptr, lengths_ptr, folded_ptr,
    valid_ptr, read_ptr, stride_channel, stride_tap, width, scale,
    RING: tl.constexpr, TAPS: tl.constexpr, K_HEADS: tl.constexpr, HEADS: tl.constexpr,
    K_DIM: tl.constexpr, V_DIM: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, FEATURES: tl.constexpr,
    KEPT: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what the rows of a span read, keep them, and fold complete blocks; grid (Hv, Dv / COLUMNS, B).

    The span is at most the widest round: no row that is read here is where another program keeps one.
    """
    PARTS: tl.constexpr = V_DIM // COLUMNS
    PIECES: tl.constexpr = K_DIM // PIECE
    head, part, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot, length, folded, reach, sure = sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, width)
    column = part * COLUMNS + tl.arange(0, COLUMNS)
    q_column = head // (HEADS // K_HEADS) * K_DIM
    place = (slot * HEADS + head) * (K_DIM * V_DIM) + column
    # No kernel of this forward has written the state, nor rows before the span.
    state = loaded(state_ptr, place, folded, K_DIM, V_DIM, PIECE)
    await_previous(PDL)
    fold = sure // 16 * 16
    for start in range(folded, reach, 16):
        position = start + tl.arange(0, 16)
        k = unit_rows(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            K_HEADS * K_DIM + q_column, 1.0, width, RING, TAPS, FEATURES, KEPT, K_DIM, PIECE,
        )  # fmt: skip
        q = unit_rows(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            q_column, scale, width, RING, TAPS, FEATURES, KEPT, K_DIM, PIECE,
        )  # fmt: skip
        values = convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            2 * K_HEADS * K_DIM + head * V_DIM + column, width, RING, TAPS, FEATURES, KEPT,
        )  # fmt: skip
        beta, units, ill = gates(
            into_ptr, ring_ptr, decay_ptr, bias_ptr, slot, sequence, length, reach, position, head,
            HEADS, width, RING, FEATURES, KEPT,
        )  # fmt: skip
        q, k = cleaned(q, k, PIECES)
        v = tl.trans(values + ill[:, None])
        since, until, between = decays(units)
        gram, scores = product(k, k, PIECES, PRECISION), product(q, k, PIECES, PRECISION)
        solved, reads = coupled(gram, scores, beta, between)
        seen, held = met(q, k, since, state, PIECES, PRECISION)
        out, update = moved(seen, held, v, beta, tl.trans(solved), tl.trans(reads), PRECISION)
        store_read(out, read_ptr, sequence, head, start - length, reach - length, column, HEADS, V_DIM, width)
        if (start + 16 < reach) | (start + 16 == fold):
            whole = tl.exp(from_units(tl.sum(units, 0)))
            state = advanced(k, until, whole, update, state, PIECES, PRECISION)
            if start + 16 == fold:
                store_state(state, state_ptr, place, K_DIM, V_DIM, PIECE)
    allow_next(PDL)
    keep_rows(
        into_ptr, ring_ptr, slot, sequence, length, reach, head * PARTS + part, HEADS * PARTS, width, RING, FEATURES,
        KEPT,
    )  # fmt: skip
