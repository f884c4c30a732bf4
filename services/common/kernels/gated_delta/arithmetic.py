"""Functions of numbers and sums that have the same bits in any layout of threads.

Sums over a row or a block are added as whole multiples of a power of two, in integers, so that their order is free.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

_MOST, _LEAST = tl.constexpr(5792.0), tl.constexpr(-5792.0)
_SQUARE_UNITS = tl.constexpr(1073741824.0)
_MOST_SQUARE = tl.constexpr(5792.0 * 5792.0)
_DECAY_UNITS = tl.constexpr(1099511627776.0)
_LEAST_DECAY = tl.constexpr(-262144.0)


@triton.jit
def finite(x):
    """Return whether numbers are neither infinite nor NaN."""
    return tl.abs(x) < float("inf")


@triton.jit
def sigmoid(x):
    """Return `1 / (1 + exp(-x))`; a root is quicker than a division."""
    root = tl.rsqrt(1.0 + tl.exp(-x))
    return root * root


@triton.jit
def softplus(x):
    """Return `log(1 + exp(x))`; the logarithm by its series, for the machine's loses small numbers."""
    y = tl.exp(-tl.abs(x))
    s = y / (2.0 + y)
    t = s * s
    series = 1.0 / 15.0 + t * (1.0 / 17.0)
    series = 1.0 / 13.0 + t * series
    series = 1.0 / 11.0 + t * series
    series = 1.0 / 9.0 + t * series
    series = 1.0 / 7.0 + t * series
    series = 1.0 / 5.0 + t * series
    series = 1.0 / 3.0 + t * series
    return tl.maximum(x, 0.0) + 2.0 * (s + s * (t * series))


@triton.jit
def squares(x):
    """Return sums of a tile's rows in multiples of 2^-30, as int64; numbers above 5,792 count as that."""
    return tl.sum((tl.minimum(x * x, _MOST_SQUARE) * _SQUARE_UNITS + 0.5).to(tl.int64), 1)


@triton.jit
def bounded(x):
    """Return numbers as `squares` counts them; what is not finite stays so."""
    return tl.where(finite(x), tl.minimum(tl.maximum(x, _LEAST), _MOST), x)


@triton.jit
def from_squares(units):
    """Return sums of squares as float32."""
    return units.to(tl.float32) * (1.0 / _SQUARE_UNITS)


@triton.jit
def decay_units(g):
    """Return log decays in multiples of 2^-40, as int64: so many rows add up without rounding."""
    return (tl.maximum(g, _LEAST_DECAY) * _DECAY_UNITS).to(tl.int64)


@triton.jit
def from_units(units):
    """Return log decays as float32."""
    return units.to(tl.float32) * (1.0 / _DECAY_UNITS)
