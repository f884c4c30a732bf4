"""Rows of a block as the recurrence takes them: convolved, activated and normalised, with their rates and decays."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import (
    bounded,
    decay_units,
    from_squares,
    sigmoid,
    softplus,
    squares,
)


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
        # Weights repeat for each row, so that they come in the layout of rows.
        weight_at = (column * stride_channel + tap * stride_tap)[None, :] + position[:, None] * 0
        total = tl.fma(row, tl.load(conv_ptr + weight_at), total)
    return total * sigmoid(total)


@triton.jit
def unit_rows(x, scale):
    """Return a head's convolved rows [16, Dk] divided by their length and scaled; none is longer than that."""
    return bounded(x) * (tl.rsqrt(from_squares(squares(x)) + 1e-6) * scale)[:, None]


@triton.jit
def gates(
    into_ptr, ring_ptr, decay_ptr, bias_ptr, slot, sequence, length, reach, position, head,
    HEADS: tl.constexpr, width, RING: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Return beta, log decay in units, and 0 or NaN for each row; a row that is absent or NaN has neither.

    Each row is computed by many threads and then taken from one: of single ones the compiler would make many copies.
    """
    row_ptr = source_rows(into_ptr, ring_ptr, slot, sequence, length, position, width, RING, FEATURES, KEPT)
    at = row_ptr[:, None] + (KEPT - 2 * HEADS + head + tl.arange(0, 16) * 0)[None, :]
    there = (position < reach)[:, None]
    logit = tl.load(at, mask=there, other=0.0).to(tl.float32)
    slope = tl.load(at + HEADS, mask=there, other=0.0).to(tl.float32)
    beta = sigmoid(logit)
    g = softplus(slope + tl.load(bias_ptr + head)) * tl.load(decay_ptr + head)
    ill = logit * 0.0 + g * 0.0
    present = there & (ill == 0.0)
    units = decay_units(tl.where(present, g, 0.0))
    return tl.max(tl.where(present, beta, 0.0), 1), tl.min(units, 1), tl.sum(ill, 1)


@triton.jit
def cleaned(q, k):
    """Return queries and keys, zero in every row with anything ill, and 0 or NaN for each row."""
    ill = tl.sum(q * 0.0 + k * 0.0, 1)
    well = (ill == 0.0)[:, None]
    return tl.where(well, q, 0.0), tl.where(well, k, 0.0), ill
