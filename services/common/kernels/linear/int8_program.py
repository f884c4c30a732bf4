"""The loops of a product of integers; sums of them are exact, and scaled once at the end."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl


@triton.jit
def multiply_int8(
    x_ptr, x_scales_ptr, weight_ptr, scales_ptr, line, end_line, row, rows, depth, stride,
    DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return the products of a band [lines, rows], float32."""
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
