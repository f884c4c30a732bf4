"""The program of a skinny matrix product: streams a band of weights and does what follows the product in a block.

A band may have several shares. Its last program adds the float32 sums in the order of the shares: that needs no second
launch and gives the same bits whichever program is last.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators

import triton
import triton.language as tl

from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, out_ptr, sums_ptr, counter_ptr, squares_ptr, stream_ptr, norm_ptr, scaled_ptr, parts_ptr,
    rows, outputs, depth, stride, eps,
    ROWS: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, SHARES: tl.constexpr, EVEN: tl.constexpr,
    PARTS: tl.constexpr, PARTS_PAD: tl.constexpr, GATED: tl.constexpr, ADDED: tl.constexpr, OFFSET: tl.constexpr,
    BULK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Multiply x [rows, depth] by a band of the weight's lines.

    GATED: half of a band's lines are the gate's, half those `outputs` further, and SwiGLU joins them. PARTS: x waits
    for its norm, whose squares come in so many parts. ADDED: the result is added to a stream, and its norm begun, whose
    weight is the stored one plus OFFSET. BULK: `x_ptr` and `weight_ptr` are descriptors, and tiles are copied whole
    (tensor memory accelerator).
    """
    band, row, lane = tl.program_id(0), tl.arange(0, ROWS), tl.arange(0, BAND)
    line = band * BAND + lane
    end_line = outputs
    if GATED:
        line = band * (BAND // 2) + lane % (BAND // 2) + lane // (BAND // 2) * outputs
        end_line = 2 * outputs
    LINES: tl.constexpr = BAND // 2 if GATED else BAND
    output = band * LINES + tl.arange(0, LINES)
    at = row[None, :] * outputs + output[:, None]
    fits = (row < rows)[None, :] & (output < outputs)[:, None]
    # Values for the end are loaded before the loop, which hides their latency.
    squares, scale, residual, norm = 0.0, 1.0, 0.0, 0.0
    if ADDED:
        norm = tl.load(norm_ptr + output, mask=output < outputs, other=0.0).to(tl.float32)[:, None]
        norm = norm_weight(norm, OFFSET)
    await_previous(PDL)
    if PARTS > 0:
        squares = row_squares(squares_ptr, row, rows, PARTS, PARTS_PAD)
    if ADDED:
        residual = tl.load(stream_ptr + at, mask=fits, other=0.0).to(tl.float32)
    if BULK:
        total = _multiply_whole(x_ptr, weight_ptr, band * LINES, depth, ROWS, BAND, DEPTH, SHARES, GATED)
    else:
        total = multiply(x_ptr, weight_ptr, line, end_line, row, rows, depth, stride, DEPTH, SHARES, EVEN)
    allow_next(PDL)
    if PARTS > 0:
        scale = row_scale(squares, depth, eps)[None, :]
    squares_at = parts_ptr + row * tl.num_programs(0) + band
    if SHARES == 1:
        _finish(total, scale, residual, norm, out_ptr + at, scaled_ptr + at, squares_at, row < rows, fits, GATED, ADDED)
    else:
        # Lines are adjacent, as in the result: another order would cost the last program a transposition.
        place, known = row[None, :] * BAND + lane[:, None], (row < rows)[None, :]
        tl.store(sums_ptr + (tl.program_id(1) * tl.num_programs(0) + band) * BAND * ROWS + place, total, mask=known)
        tl.debug_barrier()
        arrived = tl.atomic_add(counter_ptr + band, 1, sem="acq_rel")
        if arrived == SHARES - 1:
            tl.store(counter_ptr + band, 0)
            whole = tl.zeros((BAND, ROWS), dtype=tl.float32)
            for other in tl.static_range(SHARES):
                share_at = (other * tl.num_programs(0) + band) * BAND * ROWS + place
                whole += tl.load(sums_ptr + share_at, mask=known, other=0.0, cache_modifier=".cg")
            _finish(
                whole, scale, residual, norm, out_ptr + at, scaled_ptr + at, squares_at, row < rows, fits, GATED, ADDED
            )


@triton.jit
def multiply(
    x_ptr, weight_ptr, line, end_line, row, rows, depth, stride,
    DEPTH: tl.constexpr, SHARES: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return this program's share of a band [lines, rows]."""
    begin, end = _share(depth, DEPTH, SHARES)
    # The weight is the left operand: its band fills the matrix units' 64 rows, which 16 rows of x would not.
    total = tl.zeros((line.shape[0], row.shape[0]), dtype=tl.float32)
    for first in range(begin, end, DEPTH):
        column = first + tl.arange(0, DEPTH)
        weight = _weight_tile(weight_ptr, line, column, end_line, end, stride, EVEN)
        total = tl.dot(weight, _x_tile(x_ptr, row, column, rows, depth, EVEN), total, input_precision="ieee")
    return total


@triton.jit
def _multiply_whole(
    x_tiles, weight_tiles, first_line, depth,
    ROWS: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, SHARES: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """Do what `multiply` does with tiles that are copied whole; a gated weight is described as its two halves."""
    begin, end = _share(depth, DEPTH, SHARES)
    total = tl.zeros((BAND, ROWS), dtype=tl.float32)
    for first in range(begin, end, DEPTH):
        if GATED:
            weight = tl.reshape(weight_tiles.load([0, first_line, first]), (BAND, DEPTH))
        else:
            weight = weight_tiles.load([first_line, first])
        total = tl.dot(weight, x_tiles.load([0, first]).T, total, input_precision="ieee")
    return total


@triton.jit
def _share(depth, DEPTH: tl.constexpr, SHARES: tl.constexpr):
    """Return the first input of this program's share, and the one behind it."""
    share = tl.cdiv(tl.cdiv(depth, SHARES), DEPTH) * DEPTH
    begin = tl.program_id(1) * share
    return begin, tl.minimum(begin + share, depth)


@triton.jit
def _finish(
    total, scale, residual, norm, out_at, scaled_at, squares_at, known, fits, GATED: tl.constexpr, ADDED: tl.constexpr
):
    """Write the band [BAND, ROWS] and what follows the product."""
    result = total * scale
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(result, (2, total.shape[0] // 2, total.shape[1])), (1, 2, 0)))
        result = gate / (1.0 + tl.exp(-gate)) * up
    if ADDED:
        result += residual
        wide = tl.where(fits, result.to(out_at.dtype.element_ty).to(tl.float32), 0.0)
        tl.store(scaled_at, (wide * norm).to(out_at.dtype.element_ty), mask=fits)
        tl.store(squares_at, tl.sum(wide * wide, 0), mask=known)
    tl.store(out_at, result.to(out_at.dtype.element_ty), mask=fits)


@triton.jit
def _weight_tile(weight_ptr, line, column, end_line, end, stride, EVEN: tl.constexpr):
    at = weight_ptr + line.to(tl.int64)[:, None] * stride + column[None, :]
    inside = EVEN | ((line < end_line)[:, None] & (column < end)[None, :])
    return tl.load(at) if EVEN else tl.load(at, mask=inside, other=0.0)


@triton.jit
def _x_tile(x_ptr, row, column, rows, depth, EVEN: tl.constexpr):
    at = x_ptr + row[None, :] * depth + column[:, None]
    inside = (row < rows)[None, :] if EVEN else (row < rows)[None, :] & (column < depth)[:, None]
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
def row_squares(squares_ptr, row, rows, PARTS: tl.constexpr, PARTS_PAD: tl.constexpr):
    """Return the sums of squares [row, part] of x. Add them after the loop, because the addition waits for the load."""
    part = tl.arange(0, PARTS_PAD)
    inside = (row < rows)[:, None] & (part < PARTS)[None, :]
    return tl.load(squares_ptr + row[:, None] * PARTS + part[None, :], mask=inside, other=0.0)


@triton.jit
def row_scale(squares, depth, eps):
    """Return one over the root mean square of each row of x."""
    return tl.rsqrt(tl.sum(squares, 1) / depth + eps)
