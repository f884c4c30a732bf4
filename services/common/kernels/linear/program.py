"""The program of a skinny matrix product: streams a band of weights and does what follows the product in a block.

One program adds a band's whole depth in order, in one accumulator, so that a row has the same bits whatever the tile,
the operands' order or the number of rows, and the same as the library's products that do not split the depth.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight
from services.common.kernels.sums import root_scale, squares


@triton.jit
def multiply_int8(
    x_ptr, x_scales_ptr, weight_ptr, scales_ptr, line, end_line, row, rows, depth, stride,
    DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return the products of a band [lines, rows] of integers, float32: their sums are exact, and scaled once."""
    total = tl.zeros((line.shape[0], row.shape[0]), dtype=tl.int32)
    for first in range(0, depth, DEPTH):
        column = first + tl.arange(0, DEPTH)
        x_at = x_ptr + row.to(tl.int64)[:, None] * depth + column[None, :]
        weight_at = weight_ptr + line.to(tl.int64)[:, None] * stride + column[None, :]
        if EVEN:
            weight = tl.load(weight_at)
            x = tl.load(x_at, mask=(row < rows)[:, None], other=0)
        else:
            known = (column < depth)[None, :]
            weight = tl.load(weight_at, mask=(line < end_line)[:, None] & known, other=0)
            x = tl.load(x_at, mask=(row < rows)[:, None] & known, other=0)
        total = tl.dot(weight, x.T, total, out_dtype=tl.int32)
    scale = tl.load(scales_ptr + line, mask=line < end_line, other=0.0)
    x_scale = tl.load(x_scales_ptr + row, mask=row < rows, other=0.0)
    return total.to(tl.float32) * (scale[:, None] * x_scale[None, :])


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, scales_ptr, x_scales_ptr, out_ptr, squares_ptr, stream_ptr, norm_ptr, scaled_ptr, added_ptr,
    rows, outputs, depth, stride, inverse_depth, eps,
    ROWS: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, GATED: tl.constexpr,
    ADDED: tl.constexpr, GATES: tl.constexpr, OFFSET: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Multiply x [rows, depth] by a band of the weight's lines.

    GATED: half of a band's lines are the gate's, half those `outputs` further, and SwiGLU joins them. x waits
    for its norm unless `squares_ptr` is None. ADDED: the result, rounded as the library does, is added to a
    stream, and the sum's norm begun, whose weight is the stored one plus OFFSET. GATES: what `stream_ptr` holds is
    multiplied by the result's sigmoid. With scales both are integers, and the grid's first dimension is tiles of rows.
    """
    band, first_row = _placed(scales_ptr, ROWS)
    row, lane = first_row + tl.arange(0, ROWS), tl.arange(0, BAND)
    line = band * BAND + lane
    end_line = outputs
    if GATED:
        line = band * (BAND // 2) + lane % (BAND // 2) + lane // (BAND // 2) * outputs
        end_line = 2 * outputs
    LINES: tl.constexpr = BAND // 2 if GATED else BAND
    output = band * LINES + tl.arange(0, LINES)
    at = row[None, :] * outputs + output[:, None]
    fits = (row < rows)[None, :] & (output < outputs)[:, None]
    # What the end needs is asked for before the loop, which hides its latency.
    residual, norm, total_squares = 0.0, 1.0, 0
    if ADDED:
        norm = tl.load(norm_ptr + output, mask=output < outputs, other=0.0).to(tl.float32)[:, None]
        norm = norm_weight(norm, OFFSET)
    await_previous(PDL)
    if ADDED or GATES:
        residual = tl.load(stream_ptr + at, mask=fits, other=0.0).to(tl.float32)
    if squares_ptr is not None:
        total_squares = tl.load(squares_ptr + row, mask=row < rows, other=0)
    total = _total(x_ptr, x_scales_ptr, weight_ptr, scales_ptr, line, end_line, row, rows, depth, stride, DEPTH, EVEN)
    allow_next(PDL)
    kind = out_ptr.dtype.element_ty
    result = total.to(kind).to(tl.float32)
    if squares_ptr is not None:
        result *= root_scale(total_squares, inverse_depth, eps)[None, :]
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(result, (2, BAND // 2, ROWS)), (1, 2, 0)))
        tl.store(out_ptr + at, (gate / (1.0 + tl.exp(-gate)) * up).to(kind), mask=fits)
    elif ADDED:
        wide = tl.where(fits, (result + residual).to(kind).to(tl.float32), 0.0)
        tl.store(out_ptr + at, wide.to(kind), mask=fits)
        tl.store(scaled_ptr + at, (wide * norm).to(kind), mask=fits)
        # Integers add up to the same sum in any order.
        tl.atomic_add(added_ptr + row, tl.sum(squares(wide), 0), mask=row < rows, sem="relaxed")
    else:
        if GATES:
            result = gated_by(residual, result)
        tl.store(out_ptr + at, result.to(kind), mask=fits)


@triton.jit
def gated_by(mixed, gate):
    """Return numbers times the sigmoid of their gates: one formula for all numbers of rows."""
    return mixed / (1.0 + tl.exp(-gate))


@triton.jit
def _placed(scales_ptr, ROWS: tl.constexpr):
    """Return a program's band of lines and its first row."""
    if scales_ptr is None:
        band, first_row = tl.program_id(0), 0
    else:
        band, first_row = tl.program_id(1), tl.program_id(0) * ROWS
    return band, first_row


@triton.jit
def _total(
    x_ptr, x_scales_ptr, weight_ptr, scales_ptr, line, end_line, row, rows, depth, stride,
    DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return the products of a band [lines, rows], float32."""
    if scales_ptr is not None:
        total = multiply_int8(
            x_ptr, x_scales_ptr, weight_ptr, scales_ptr, line, end_line, row, rows, depth, stride, DEPTH, EVEN
        )
    else:
        total = multiply(x_ptr, weight_ptr, line, end_line, row, rows, depth, stride, DEPTH, EVEN)
    return total


@triton.jit
def multiply(
    x_ptr, weight_ptr, line, end_line, row, rows, depth, stride, DEPTH: tl.constexpr, EVEN: tl.constexpr
):  # fmt: skip
    """Return the products of a band [lines, rows]: a weight on the left fills the matrix units, few rows would not."""
    total = tl.zeros((line.shape[0], row.shape[0]), dtype=tl.float32)
    for first in range(0, depth, DEPTH):
        column = first + tl.arange(0, DEPTH)
        weight = _weight_tile(weight_ptr, line, column, end_line, depth, stride, EVEN)
        x = _x_tile(x_ptr, row, column, rows, depth, EVEN)
        total = tl.dot(weight, x.T, total, input_precision="ieee")
    return total


@triton.jit
def _weight_tile(weight_ptr, line, column, end_line, end, stride, EVEN: tl.constexpr):
    at = weight_ptr + line.to(tl.int64)[:, None] * stride + column[None, :]
    inside = EVEN | ((line < end_line)[:, None] & (column < end)[None, :])
    return tl.load(at) if EVEN else tl.load(at, mask=inside, other=0.0)


@triton.jit
def _x_tile(x_ptr, row, column, rows, depth, EVEN: tl.constexpr):
    at = x_ptr + row[:, None] * depth + column[None, :]
    inside = (row < rows)[:, None] if EVEN else (row < rows)[:, None] & (column < depth)[None, :]
    return tl.load(at, mask=inside, other=0.0)
