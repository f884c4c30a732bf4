"""Rows of a block as the recurrence takes them: convolved, activated and normalised, with their rates and decays."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import decay_units, finite, from_squares, sigmoid, softplus, squares


@triton.jit
def sequence_of(slots_ptr, lengths_ptr, folded_ptr, valid_ptr, sequence, width):
    """Return slot, length, positions folded, end of the rows that are real, and end of those that stay."""
    slot = tl.load(slots_ptr + sequence).to(tl.int64)
    length = tl.load(lengths_ptr + sequence).to(tl.int32)
    folded = tl.load(folded_ptr + sequence).to(tl.int32)
    reach, sure = length + width, length
    if valid_ptr is not None:
        reach = length + tl.load(valid_ptr + sequence).to(tl.int32)
        sure = reach
    return slot, length, folded, reach, sure


@triton.jit
def source_rows(
    into_ptr, ring_ptr, slot, sequence, length, at, width,
    RING: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Return where rows at positions `at` begin: in the ring below the length, in the span from there on."""
    new_ptr = into_ptr + (sequence * width + (at - length)) * FEATURES
    return tl.where(at >= length, new_ptr, ring_ptr + (slot * RING + at % RING) * KEPT)


@triton.jit
def convolved(
    into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position, column,
    width, RING: tl.constexpr, TAPS: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Return SiLU of the convolution of columns at each position, [16, columns]; NaN where it meets one."""
    total = tl.zeros((position.shape[0], column.shape[0]), dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        at = position + (tap + 1 - TAPS)
        row_ptr = source_rows(into_ptr, ring_ptr, slot, sequence, length, at, width, RING, FEATURES, KEPT)
        there = (at >= 0) & (at < reach)
        row = tl.load(row_ptr[:, None] + column[None, :], mask=there[:, None], other=0.0).to(tl.float32)
        weight = tl.load(conv_ptr + column * stride_channel + tap * stride_tap)
        total = total + row * weight[None, :]
    return total * sigmoid(total)


@triton.jit
def unit_rows(
    into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position, first_column,
    scale, width, RING: tl.constexpr, TAPS: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    K_DIM: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Return a head's convolved rows divided by their length and scaled, in pieces [16, PIECE]."""
    pieces = ()
    total = tl.zeros((16,), dtype=tl.int64)
    for first in tl.static_range(0, K_DIM, PIECE):
        piece = convolved(
            into_ptr, ring_ptr, conv_ptr, stride_channel, stride_tap, slot, sequence, length, reach, position,
            first_column + first + tl.arange(0, PIECE), width, RING, TAPS, FEATURES, KEPT,
        )  # fmt: skip
        total += squares(piece)
        pieces = pieces + (piece,)  # noqa: RUF005
    scale = tl.rsqrt(from_squares(total) + 1e-6) * scale
    units = ()
    for index in tl.static_range(K_DIM // PIECE):
        units = units + (pieces[index] * scale[:, None],)  # noqa: RUF005
    return units


@triton.jit
def gates(
    into_ptr, ring_ptr, decay_ptr, bias_ptr, slot, sequence, length, reach, position, head,
    HEADS: tl.constexpr, width, RING: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Return beta, log decay in units, and 0 or NaN for each row; a row that is absent or NaN has neither."""
    row_ptr = source_rows(into_ptr, ring_ptr, slot, sequence, length, position, width, RING, FEATURES, KEPT)
    column, there = KEPT - 2 * HEADS + head, position < reach
    logit = tl.load(row_ptr + column, mask=there, other=0.0).to(tl.float32)
    slope = tl.load(row_ptr + column + HEADS, mask=there, other=0.0).to(tl.float32)
    beta = sigmoid(logit)
    g = softplus(slope + tl.load(bias_ptr + head)) * tl.load(decay_ptr + head)
    ill = logit * 0.0 + g * 0.0
    present = there & (ill == 0.0)
    return tl.where(present, beta, 0.0), decay_units(tl.where(present, g, 0.0)), ill


@triton.jit
def cleaned(q, k, PIECES: tl.constexpr):
    """Return queries that are NaN in every row with anything ill, and keys that are zero there."""
    ill = tl.zeros((16,), dtype=tl.float32)
    for index in tl.static_range(PIECES):
        ill += tl.sum(q[index] * 0.0 + k[index] * 0.0, 1)
    queries, keys = (), ()
    for index in tl.static_range(PIECES):
        queries = queries + (q[index] + ill[:, None],)  # noqa: RUF005
        keys = keys + (tl.where(finite(k[index]), k[index], 0.0),)  # noqa: RUF005
    return queries, keys
