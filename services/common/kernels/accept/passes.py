"""The passes over all scores of a row that narrow its interval down: sums at edges, twice, then a gathering.

Every pass settles by the sums of the one before, which each of its programs adds up for itself; what a pass leaves
lies beside what it read, for its programs finish at any time. A program leaves only after the kernel before it is done:
the next one counts on that, whether or not a row cuts anything.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl

from services.common.kernels.accept.interval import divided, highest, narrowed, summed, wanted
from services.common.kernels.overlap import allow_next, await_previous


@triton.jit
def _amounts(scores_ptr, count, edge, best, weigh, CHUNK: tl.constexpr):
    """Sum over `count` scores, for each of sixteen edges, what those at least as large amount to."""
    total = tl.zeros((16, CHUNK), dtype=tl.float32)
    for start in range(0, count, CHUNK):
        place = start + tl.arange(0, CHUNK)
        score = tl.load(scores_ptr + place, mask=place < count, other=float("-inf"))
        value = tl.where(place < count, tl.where(weigh, tl.exp(score - best), 1.0), 0.0)
        # A sum that is kept or added to is one instruction after the compare; adding what is chosen is two.
        total = tl.where(score[None, :] >= edge[:, None], total + value[None, :], total)
    return tl.sum(total, 1)


@triton.jit
def sum_kernel(
    scores_ptr, peaks_ptr, rows_ptr, temperature_ptr, top_k_ptr, top_p_ptr, amounts_ptr, edges_ptr, bounds_ptr,
    vocab, rows, tiles, peaks,
    WIDTH: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr, SHARE: tl.constexpr, TILES_PAD: tl.constexpr,
    PEAKS_PAD: tl.constexpr, AGAIN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Sum a tile's amounts at the edges of all scores, or AGAIN at those of the interval that this has left.

    A row that cuts by both looks for top-k's threshold first.
    """
    program, tile = tl.program_id(0), tl.program_id(1)
    await_previous(PDL)
    best, peak = highest(peaks_ptr, program, tile, peaks, SHARE, PEAKS_PAD)
    top_k, top_p, by_count, by_mass = wanted(
        program, rows_ptr, temperature_ptr, top_k_ptr, top_p_ptr, best, vocab, WIDTH
    )
    if (by_count | by_mass) == 0:
        return
    index = tl.arange(0, 16)
    low, high = tl.full((), float("-inf"), tl.float32), tl.full((), float("inf"), tl.float32)
    if AGAIN:
        amount = summed(amounts_ptr, program, tiles, TILES_PAD)
        needed = tl.where(by_count, top_k.to(tl.float32), top_p * tl.max(amount, 0))
        edge = tl.load(edges_ptr + program * 16 + index)
        low, high, above = narrowed(edge, amount, high, 0.0, needed)
        amounts_ptr += rows * tiles * 16
        edges_ptr += rows * 16
        if tile == 0:
            tl.store(bounds_ptr + program * 4 + 1, high)
            tl.store(bounds_ptr + program * 4 + 2, above)
            tl.store(bounds_ptr + program * 4 + 3, needed)
    edge = divided(low, high, best)
    if tile == 0:
        tl.store(edges_ptr + program * 16 + index, edge)
    amount = tl.zeros((16,), dtype=tl.float32)
    if peak >= low:
        scores_ptr += program.to(tl.int64) * vocab + tile * TILE
        amount = _amounts(scores_ptr, tl.minimum(vocab - tile * TILE, TILE), edge, best, by_count == 0, CHUNK)
    allow_next(PDL)
    tl.store(amounts_ptr + (program * tiles + tile) * 16 + index, amount)


@triton.jit
def gather_kernel(
    scores_ptr, peaks_ptr, rows_ptr, temperature_ptr, top_k_ptr, top_p_ptr, amounts_ptr, edges_ptr, bounds_ptr,
    kept_ptr, found_ptr, vocab, rows, tiles, peaks,
    WIDTH: tl.constexpr, TILE: tl.constexpr, SHARE: tl.constexpr, TILES_PAD: tl.constexpr, PEAKS_PAD: tl.constexpr,
    KEPT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Keep a tile's first KEPT scores of the interval in their order, and write how many there were.

    A row that cuts by both keeps all above it too, for top-p weighs those.
    """
    program, tile = tl.program_id(0), tl.program_id(1)
    await_previous(PDL)
    best, peak = highest(peaks_ptr, program, tile, peaks, SHARE, PEAKS_PAD)
    _, _, by_count, by_mass = wanted(program, rows_ptr, temperature_ptr, top_k_ptr, top_p_ptr, best, vocab, WIDTH)
    if (by_count | by_mass) == 0:
        return
    amount = summed(amounts_ptr + rows * tiles * 16, program, tiles, TILES_PAD)
    edge = tl.load(edges_ptr + rows * 16 + program * 16 + tl.arange(0, 16))
    bounds_ptr += program * 4
    high, above, needed = tl.load(bounds_ptr + 1), tl.load(bounds_ptr + 2), tl.load(bounds_ptr + 3)
    low, high, above = narrowed(edge, amount, high, above, needed)
    high, above = tl.where(by_count & by_mass, float("inf"), high), tl.where(by_count & by_mass, 0.0, above)
    if tile == 0:
        after = bounds_ptr + rows * 4
        tl.store(after, low)
        tl.store(after + 1, high)
        tl.store(after + 2, above)
        tl.store(after + 3, needed)
    mine, found = program * tiles + tile, 0
    if peak >= low:
        token = tile * TILE + tl.arange(0, TILE)
        score = tl.load(scores_ptr + program.to(tl.int64) * vocab + token, mask=token < vocab, other=float("nan"))
        within = ((score >= low) & (score < high)).to(tl.int32)
        place = tl.cumsum(within, 0) - 1
        found = tl.sum(within, 0)
        tl.store(kept_ptr + mine * KEPT + place, score, mask=(within > 0) & (place < KEPT))
    allow_next(PDL)
    tl.store(found_ptr + mine, found)
