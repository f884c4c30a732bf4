"""The passes over all scores of a row that narrow its interval: two of sums at edges, then one that gathers.

A program returns only after the kernel before it is done, whether or not its row cuts anything: the next kernel relies
on that.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl

from services.common.kernels.accept.interval import highest
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def _amounts(scores_ptr, count, edge, best, weigh, CHUNK: tl.constexpr):
    """Sum over `count` scores, for each of sixteen edges, what those at least as large amount to."""
    total = tl.zeros((16, CHUNK), dtype=tl.float32)
    place = tl.arange(0, CHUNK)
    coming = tl.load(scores_ptr + place, mask=place < count, other=float("-inf"))
    for start in range(0, count, CHUNK):
        score, later = coming, start + CHUNK + place
        # The next scores are loaded while these are compared.
        coming = tl.load(scores_ptr + later, mask=later < count, other=float("-inf"))
        value = tl.where(start + place < count, tl.where(weigh, tl.exp(score - best), 1.0), 0.0)
        # Choosing between the old and the new sum takes one instruction after the compare; adding a chosen value takes
        # two.
        total = tl.where(score[None, :] >= edge[:, None], total + value[None, :], total)
    return tl.sum(total, 1)


@triton.jit
def sum_kernel(
    scores_ptr, peaks_ptr, amounts_ptr, edges_ptr, bounds_ptr, vocab, tiles, peaks,
    TILE: tl.constexpr, CHUNK: tl.constexpr, SHARE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Sum a tile's amounts at the edges of its row's interval."""
    program, tile, index = tl.program_id(0), tl.program_id(1), tl.arange(0, 16)
    await_previous(PDL)
    bounds_ptr += program * 8
    low, best, kind = tl.load(bounds_ptr), tl.load(bounds_ptr + 4), tl.load(bounds_ptr + 5)
    edge = tl.load(edges_ptr + program * 16 + index)
    peak = highest(peaks_ptr, program, tile, peaks, SHARE)
    if kind == 0:
        return
    amount = tl.zeros((16,), dtype=tl.float32)
    if peak >= low:
        scores_ptr += program.to(tl.int64) * vocab + tile * TILE
        amount = _amounts(scores_ptr, tl.minimum(vocab - tile * TILE, TILE), edge, best, kind == 1, CHUNK)
    allow_next(PDL)
    tl.store(amounts_ptr + (program * tiles + tile) * 16 + index, amount)


@triton.jit
def gather_kernel(
    scores_ptr, peaks_ptr, bounds_ptr, kept_ptr, found_ptr, vocab,
    TILE: tl.constexpr, KEPT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Keep a tile's first KEPT scores of the interval in their order, and write how many there were."""
    program, tile = tl.program_id(0), tl.program_id(1)
    mine, found = program * tl.num_programs(1) + tile, 0
    await_previous(PDL)
    bounds_ptr += program * 8
    low, high, kind = tl.load(bounds_ptr), tl.load(bounds_ptr + 1), tl.load(bounds_ptr + 5)
    peak = tl.load(peaks_ptr + mine)
    if kind == 0:
        return
    if peak >= low:
        token = tile * TILE + tl.arange(0, TILE)
        score = tl.load(scores_ptr + program.to(tl.int64) * vocab + token, mask=token < vocab, other=float("nan"))
        within = ((score >= low) & (score < high)).to(tl.int32)
        place = tl.cumsum(within, 0) - 1
        found = tl.sum(within, 0)
        tl.store(kept_ptr + mine * KEPT + place, score, mask=(within > 0) & (place < KEPT))
    allow_next(PDL)
    tl.store(found_ptr + mine, found)
