"""The end of a search: finds the threshold among the scores that a row's tiles have gathered."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl

from services.common.kernels.pdl import await_previous


@triton.jit
def _flipped(bits):
    """Map a float's bits to an int32 of the same order, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _measured(
    source_ptr, stride, lengths, longest, middle, low, high, best, weigh,
    TILES_PAD: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return what the keys from `middle` on amount to, the least of them, and the largest key below."""
    tile, column = tl.arange(0, TILES_PAD)[:, None], tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((TILES_PAD, COLUMNS), dtype=tl.float32)
    least = tl.full((TILES_PAD, COLUMNS), 2147483647, tl.int32)
    most = tl.full((TILES_PAD, COLUMNS), -2147483648, tl.int32)
    for start in range(0, longest, COLUMNS):
        place = start + column
        score = tl.load(source_ptr + tile * stride + place, mask=place < lengths[:, None], other=float("nan"))
        within = (score >= low) & (score < high)
        key = _flipped(score.to(tl.int32, bitcast=True))
        upper = within & (key >= middle)
        total += tl.where(upper, tl.where(weigh, tl.exp(score - best), 1.0), 0.0)
        least = tl.minimum(least, tl.where(upper, key, 2147483647))
        most = tl.maximum(most, tl.where(within & (key < middle), key, -2147483648))
    return tl.sum(tl.sum(total, 1), 0), tl.min(tl.min(least, 1), 0), tl.max(tl.max(most, 1), 0)


@triton.jit
def _threshold(
    source_ptr, stride, lengths, longest, low, high, above, needed, best, weigh,
    TILES_PAD: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return the largest score of [low, high) from which on the amounts, and `above`, are enough; else the least.

    Bisects between keys that occur, so that many scores of few values take few steps.
    """
    least = _measured(source_ptr, stride, lengths, longest, -2147483648, low, high, best, weigh, TILES_PAD, COLUMNS)[1]
    last = _flipped(tl.minimum(high, best).to(tl.int32, bitcast=True))
    # No score lies between two edges whose amounts differ by rounding alone, so the upper edge cuts as well.
    first = tl.minimum(least, last)
    while first < last:
        middle = (first | last) - ((first ^ last) >> 1)
        amount, least, most = _measured(
            source_ptr, stride, lengths, longest, middle, low, high, best, weigh, TILES_PAD, COLUMNS
        )
        enough = above + amount >= needed
        first, last = tl.where(enough, least, first), tl.where(enough, last, most)
    return _flipped(first).to(tl.float32, bitcast=True)


@triton.jit
def floor_kernel(
    scores_ptr, rows_ptr, bounds_ptr, kept_ptr, found_ptr, floors_ptr, vocab, tiles,
    temperature_ptr, top_p_ptr, min_p_ptr, WIDTH: tl.constexpr, TILE: tl.constexpr, TILES_PAD: tl.constexpr,
    KEPT: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the floor of a row; one program each. Where a tile could not keep all, the row is read again, each step."""
    program = tl.program_id(0)
    slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
    top_p, min_p = tl.load(top_p_ptr + slot), tl.load(min_p_ptr + slot)
    sampled = tl.load(temperature_ptr + slot) > 0
    await_previous(PDL)
    bounds_ptr += program * 8
    best, kind = tl.load(bounds_ptr + 4), tl.load(bounds_ptr + 5)
    floor = tl.full((), float("-inf"), tl.float32)
    if kind > 0:
        low, high = tl.load(bounds_ptr), tl.load(bounds_ptr + 1)
        above, needed = tl.load(bounds_ptr + 2), tl.load(bounds_ptr + 3)
        tile = tl.arange(0, TILES_PAD)
        lengths = tl.load(found_ptr + program * tiles + tile, mask=tile < tiles, other=0)
        fits = tl.max(lengths, 0) <= KEPT
        lengths = tl.where(fits, lengths, tl.maximum(tl.minimum(vocab - tile * TILE, TILE), 0))
        longest, stride = tl.max(lengths, 0), tl.where(fits, KEPT, TILE)
        source_ptr = scores_ptr + program.to(tl.int64) * vocab
        if fits:
            source_ptr = kept_ptr + program.to(tl.int64) * tiles * KEPT
        floor = _threshold(
            source_ptr, stride, lengths, longest, low, high, above, needed, best, kind == 1, TILES_PAD, COLUMNS
        )
        if kind == 3:
            total = _measured(
                source_ptr, stride, lengths, longest, -2147483648, floor, high, best, True, TILES_PAD, COLUMNS
            )[0]
            floor = _threshold(
                source_ptr, stride, lengths, longest, floor, high, 0.0, top_p * total, best, True, TILES_PAD, COLUMNS
            )
    tl.store(floors_ptr + program, tl.where(sampled & (min_p > 0), tl.maximum(floor, best + tl.log(min_p)), floor))
