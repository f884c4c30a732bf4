"""What a row's threshold is searched by: what its request cuts, and the interval of scores that is left.

An interval [low, high) holds the threshold: the amounts (counts for top-k, weights for top-p) of the scores from `low`
on reach what is needed, those from `high` on, which are `above`, do not. Sixteen edges divide it, by nats below the
peak at first and evenly then: by its first bits, most scores of a row are the same float.

One program a row settles the interval before each pass and leaves it in `bounds`, the edges beside it: were it left to
every program of a pass, most of their time would go into that.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl


@triton.jit
def highest(peaks_ptr, program, tile, peaks, SHARE: tl.constexpr):
    """Return the highest score of a tile, which has SHARE peaks."""
    index = tile * SHARE + tl.arange(0, SHARE)
    return tl.max(tl.load(peaks_ptr + program * peaks + index, mask=index < peaks, other=float("-inf")), 0)


@triton.jit
def divided(low, high, best):
    """Return sixteen rising edges of an interval, the first of them `low`."""
    index = tl.arange(0, 16)
    top = tl.minimum(high, best)
    first = tl.where(low > float("-inf"), low, top - 16)
    return tl.where(index == 0, low, first + index * ((top - first) / 16))


@triton.jit
def summed(amounts_ptr, program, tiles, TILES_PAD: tl.constexpr):
    """Return a row's amounts at its edges: those of its tiles, added in one order."""
    index, tile = tl.arange(0, 16), tl.arange(0, TILES_PAD)
    at = (program * tiles + tile)[:, None] * 16 + index[None, :]
    return tl.sum(tl.load(amounts_ptr + at, mask=(tile < tiles)[:, None], other=0.0), 0)


@triton.jit
def narrowed(edge, amount, high, above, needed):
    """Return the interval between the last edge whose amount is enough and the next: low, high, above."""
    index = tl.arange(0, 16)
    digit = tl.maximum(tl.sum((amount >= needed).to(tl.int32), 0) - 1, 0)
    low = tl.max(tl.where(index == digit, edge, float("-inf")), 0)
    within = digit < 15
    high = tl.where(within, tl.max(tl.where(index == digit + 1, edge, float("-inf")), 0), high)
    above = tl.where(within, tl.sum(tl.where(index == digit + 1, amount, 0.0), 0), above)
    return low, high, above
