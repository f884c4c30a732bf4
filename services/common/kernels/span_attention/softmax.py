"""The running softmax of attention: parts that give the same sums wherever they are put together.

The reference of every exponential is a whole power of two, so changing it rounds nothing. What remains is an order of
additions: tiles of a split in order, then splits in order.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

NOTHING = tl.constexpr(-1e30)
"""The reference of a row that has seen no position."""


@triton.jit
def nothing(TILE: tl.constexpr, SIZE_PAD: tl.constexpr, WIDE: tl.constexpr, MASSES: tl.constexpr = 16):
    """Return reference [TILE], mass [TILE, MASSES] and sum [TILE, SIZE_PAD] of no positions."""
    best = tl.full((TILE,), NOTHING, dtype=WIDE)
    return best, tl.zeros((TILE, MASSES), dtype=WIDE), tl.zeros((TILE, SIZE_PAD), dtype=WIDE)


@triton.jit
def highest(scores, scale):
    """Return the least whole power of two that no score of a row exceeds; hidden scores are -inf."""
    return tl.ceil(tl.max(scores, 1) * scale)


@triton.jit
def take(scores, top, v, scale, best, mass, sum_):
    """Add a tile of positions, of which `top` is the highest, to a part.

    The mass is a product with ones, added in the same order by every kind of matrix unit, in equal columns. The tree of
    a plain sum would follow the tile and the number of warps.
    """
    higher = tl.maximum(best, top)
    offset = tl.broadcast_to(-higher[:, None], scores.shape)
    weights = tl.exp2(tl.fma(scores, tl.full(scores.shape, 1.0, scores.dtype) * scale, offset)).to(v.dtype)
    fade = power(best - higher)[:, None]
    # Both are faded first: two products in a row need not wait for one another.
    faded_mass, faded_sum = mass * fade, sum_ * fade
    ones = tl.full((v.shape[0], mass.shape[1]), 1.0, v.dtype)
    mass = tl.dot(weights, ones, faded_mass, input_precision="ieee", out_dtype=mass.dtype)
    sum_ = tl.dot(weights, v, faded_sum, input_precision="ieee", out_dtype=sum_.dtype)
    return higher, mass, sum_


@triton.jit
def fold(best, mass, sum_, next_best, next_mass, next_sum):
    """Return a part and the one that follows it as one part."""
    top = tl.maximum(best, next_best)
    fade, next_fade = power(best - top)[:, None], power(next_best - top)[:, None]
    # Products with powers of two are exact, so a fused sum has the bits of a separate one.
    mass = tl.fma(next_mass, power(next_best - top), mass * power(best - top))
    return top, mass, tl.fma(next_sum, tl.broadcast_to(next_fade, sum_.shape), sum_ * fade)


@triton.jit
def power(exponent):
    """Return two to the power of an integer of at most 0, exactly; below -126 zero."""
    if exponent.dtype == tl.float64:
        return tl.exp2(exponent)
    return (tl.maximum(exponent, -127.0).to(tl.int32) + 127 << 23).to(tl.float32, bitcast=True)


@triton.jit
def mean(mass, sum_, out_ptrs):
    """Return the weighted mean of the values, as it is stored; zero for a row that saw none."""
    highest = tl.max(mass, 1)
    return (sum_ / tl.where(highest > 0, highest, 1.0)[:, None]).to(out_ptrs.dtype.element_ty)
