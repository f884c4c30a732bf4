"""Sums that no order changes: the same bits in any layout, tile, number of warps or company.

A reduction of floating-point numbers adds in an order that follows how a tile lies in the threads. Squares are added as
whole multiples of 2^-24 instead. That is a sixteenth of the smallest epsilon that models add to the mean.
Numbers up to 185,000 count in full, and a row has room for 15 of that size.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl


@triton.jit
def squares(x):
    """Return the squares of numbers in multiples of 2^-24, as int64; larger ones than 2^35 count as that."""
    return (tl.minimum(x * x, 34359738368.0) * 16777216.0 + 0.5).to(tl.int64)


@triton.jit
def root_scale(total, inverse_count, eps):
    """Return one over the root of the mean of squares that add up to `total`."""
    return tl.rsqrt(tl.fma(total.to(tl.float32), inverse_count * 5.9604644775390625e-08, eps))


@triton.jit
def row_scale(squares_ptr, row, inverse_count, eps):
    """Return the same of a row's squares, which lie in memory, [1]."""
    return root_scale(tl.load(squares_ptr + row + tl.arange(0, 1)), inverse_count, eps)
