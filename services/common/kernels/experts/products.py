"""A tile of rows times a band of their expert's lines, which are numbers or codes of e4m3."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.linear.packed_widen import GROUP, to_bfloat16


@triton.jit
def numbers_of(weight, scale_at, first, next_scales, kind: tl.constexpr):
    """Return loaded lines as they are, or the numbers of a kind that their codes mean: rounded to bfloat16 once.

    Each line has a scale for all its inputs, or one for each 128 of them, `next_scales` apart.
    """
    numbers = weight
    if scale_at is not None:
        scale = tl.load(scale_at + first // GROUP * next_scales)
        wide = weight.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale[:, None]
        numbers = wide.to(kind) if kind == tl.bfloat16 else to_bfloat16(wide).to(kind)
    return numbers


@triton.jit
def multiplied(
    x_ptr, source, used, weight_ptr, line, fitting, scale_at, next_scales, depth,
    ROWS: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return a band of lines times rows of x [BAND, ROWS]: the whole depth in order, in one accumulator."""
    total = tl.zeros((BAND, ROWS), dtype=tl.float32)
    for first in range(0, depth, DEPTH):
        column = first + tl.arange(0, DEPTH)
        x_at = x_ptr + source.to(tl.int64)[:, None] * depth + column[None, :]
        weight_at = weight_ptr + line.to(tl.int64)[:, None] * depth + column[None, :]
        if EVEN:
            x = tl.load(x_at, mask=used[:, None], other=0.0, cache_modifier=".cg")
            weight = tl.load(weight_at)
        else:
            within = (column < depth)[None, :]
            x = tl.load(x_at, mask=used[:, None] & within, other=0.0, cache_modifier=".cg")
            weight = tl.load(weight_at, mask=fitting[:, None] & within, other=0)
        weight = numbers_of(weight, scale_at, first, next_scales, x.dtype)
        total = tl.dot(weight, x.T, total, input_precision="ieee")
    return total


@triton.jit
def multiplied_twice(
    x_ptr, source, used, later, later_used, weight_ptr, line, fitting, scale_at, next_scales, depth,
    ROWS: tl.constexpr, MORE: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return the same of rows and of some more, [BAND, ROWS] and [BAND, MORE], for which lines are read once."""
    total, more = tl.zeros((BAND, ROWS), dtype=tl.float32), tl.zeros((BAND, MORE), dtype=tl.float32)
    for first in range(0, depth, DEPTH):
        column = first + tl.arange(0, DEPTH)
        x_at = x_ptr + source.to(tl.int64)[:, None] * depth + column[None, :]
        later_at = x_ptr + later.to(tl.int64)[:, None] * depth + column[None, :]
        weight_at = weight_ptr + line.to(tl.int64)[:, None] * depth + column[None, :]
        if EVEN:
            x = tl.load(x_at, mask=used[:, None], other=0.0)
            late = tl.load(later_at, mask=later_used[:, None], other=0.0)
            weight = tl.load(weight_at)
        else:
            within = (column < depth)[None, :]
            x = tl.load(x_at, mask=used[:, None] & within, other=0.0)
            late = tl.load(later_at, mask=later_used[:, None] & within, other=0.0)
            weight = tl.load(weight_at, mask=fitting[:, None] & within, other=0)
        weight = numbers_of(weight, scale_at, first, next_scales, x.dtype)
        total = tl.dot(weight, x.T, total, input_precision="ieee")
        more = tl.dot(weight, late.T, more, input_precision="ieee")
    return total, more
