"""Numbers as pairs of halves: three products of float16 are one of 22 bits, and Hopper does them at its full rate.

What they are taken of is scaled by a power of two first, so that neither half overflows or loses bits.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

TILE_SCALE = tl.constexpr(1024.0)
"""Of what is prepared of a block: numbers of at most about 1."""
_ROW_SCALE = tl.constexpr(16384.0)
_BACK = tl.constexpr(1.0 / (16384.0 * 1024.0))
_EXPONENT = tl.constexpr(0x7F800000)
_LEAST, _MOST, _REVERSED = tl.constexpr(27 << 23), tl.constexpr(253 << 23), tl.constexpr(254 << 23)


@triton.jit
def halves(x):
    """Return two tiles of float16 whose sum is x, to 22 bits."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def scales(x):
    """Return powers of two by which each row of x comes just below 2^15, and by which its products come back."""
    most = tl.max(tl.abs(x), 1).to(tl.int32, bitcast=True) & _EXPONENT
    power = tl.minimum(tl.maximum(most, _LEAST), _MOST)
    up = (-power + _REVERSED).to(tl.float32, bitcast=True) * _ROW_SCALE
    return up, power.to(tl.float32, bitcast=True) * _BACK


@triton.jit
def times(x, tile_high, tile_low):
    """Return the product of x with a tile that was scaled; rows of x may have any size."""
    up, down = scales(x)
    high, low = halves(x * up[:, None])
    total = tl.dot(low, tile_high)
    total = tl.dot(high, tile_low, total)
    return tl.dot(high, tile_high, total) * down[:, None]
