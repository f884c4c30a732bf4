"""The search for a row's threshold: the request's cuts, and the interval of scores that is left.

An interval [low, high) holds the threshold: scores from `low` on amount to what is needed, scores from `high` on
(`above`) do not. An amount is a count for top-k and a sum of weights for top-p. Sixteen edges divide the interval, by
nats below the peak at first and evenly later.

One program a row narrows the interval before each pass and writes it to `bounds`, with the edges beside it. If every
program of a pass did so, that would take most of its time.
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
