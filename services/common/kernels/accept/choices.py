"""GPU kernels that tell the host what masked rows choose where no mask is: the same bits as those of the choice."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import triton
import triton.language as tl

from services.common.kernels.accept.choose import gumbel
from services.common.kernels.accept.greedy import best_of_tiles
from services.common.kernels.dispatch import INTERPRETED

SHARES = 2 if INTERPRETED else 8
"""Programs of a row."""


@triton.jit
def peek_kernel(
    logits_ptr, rows_ptr, values_ptr, tokens_ptr, masked_ptr, unfiltered_ptr, temperature_ptr, seed_ptr, length_ptr,
    depths_ptr, vocab, each,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the best score of a row's share of `each` tiles, and its lowest token; NaN where it holds NaN or +inf."""
    program, share = tl.program_id(0), tl.program_id(1)
    slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
    if (tl.load(masked_ptr + slot) == 0) | (tl.load(unfiltered_ptr + slot) == 0):
        return
    heat, seed = tl.load(temperature_ptr + slot), tl.load(seed_ptr + slot)
    depth = program % WIDTH if depths_ptr is None else tl.load(depths_ptr + program)
    position = tl.load(length_ptr + slot) + 1 + depth
    place = tl.arange(0, TILE)
    highest, lowest = tl.full((TILE,), float("-inf"), tl.float32), tl.full((TILE,), 2147483647, tl.int32)
    spoilt = tl.zeros((TILE,), tl.int32)
    for tile in range(share * each, (share + 1) * each):
        token = tile * TILE + place
        inside = token < vocab
        at = program.to(tl.int64) * vocab + token
        score = tl.load(logits_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
        spoilt += ((score != score) | (score == float("inf"))).to(tl.int32)
        if heat > 0:
            score = score / heat + gumbel(seed, position, tile * TILE, TILE)
        better = inside & (score > highest)
        highest, lowest = tl.where(better, score, highest), tl.where(better, token, lowest)
    best = tl.max(highest, 0)
    at = program * tl.num_programs(1) + share
    tl.store(tokens_ptr + at, tl.min(tl.where(highest == best, lowest, 2147483647), 0))
    tl.store(values_ptr + at, tl.where(tl.sum(spoilt, 0) > 0, float("nan"), best))


@triton.jit
def told_kernel(
    values_ptr, tokens_ptr, rows_ptr, masked_ptr, unfiltered_ptr, number_ptr, told_ptr, most,
    WIDTH: tl.constexpr, SHARES: tl.constexpr, LAST_BITS: tl.constexpr,
):  # fmt: skip
    """Write a row's word, whole, where its slot has those of `most` rows."""
    row, share = tl.program_id(0), tl.arange(0, SHARES)[None, :]
    slot = tl.load(rows_ptr + row // WIDTH).to(tl.int64)
    if (tl.load(masked_ptr + slot) == 0) | (tl.load(unfiltered_ptr + slot) == 0):
        return
    value, token = tl.load(values_ptr + row * SHARES + share), tl.load(tokens_ptr + row * SHARES + share)
    spoilt, best, token = best_of_tiles(value, token)
    sane = (spoilt == 0) & (best > float("-inf"))
    token = tl.where(sane, token, -1).to(tl.int64) & 0xFFFFFFFF
    word = ((tl.load(number_ptr) & LAST_BITS) << 32) | token
    tl.store(told_ptr + slot * most + row % WIDTH + tl.arange(0, 1), word)
