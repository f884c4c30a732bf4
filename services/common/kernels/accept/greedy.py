"""GPU kernel of the best token of each tile where no request samples.

One reduction over integers finds a tile's. A number holds the order of a score in its upper half. In its lower
half it holds how far a token lies before its tile's end. So the largest one is the best score's lowest token.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.pdl import allow_next, await_previous

GREEDY_TILE = 128 if INTERPRETED else 4096
"""Scores of a program; fewer than 65,536, which is what the lower half of a number can tell apart."""
_SPOILT = tl.constexpr(0x7FFFFFFF)
_INFINITE = tl.constexpr(0x7F800000)


@triton.jit
def greedy_kernel(logits_ptr, values_ptr, tokens_ptr, vocab, TILE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr):
    """Write the best score of a tile and its lowest token; NaN when the tile holds NaN or +inf.

    WIDE scores have 32 bits, and integers of 64 then.
    """
    allow_next(PDL)
    await_previous(PDL)
    program, tile = tl.program_id(0), tl.program_id(1)
    place = tl.arange(0, TILE)
    token = tile * TILE + place
    inside = token < vocab
    score = tl.load(logits_ptr + program.to(tl.int64) * vocab + token, mask=inside, other=float("-inf"))
    score = score.to(tl.float32) + 0.0  # -0 becomes 0, so that both are equal
    bits = score.to(tl.int32, bitcast=True)
    order = tl.where(score < float("inf"), bits ^ ((bits >> 31) & 0x7FFFFFFF), _SPOILT)
    if WIDE:
        best = tl.max(tl.where(inside, (order.to(tl.int64) << 32) | (TILE - 1 - place), -0x7FFFFFFFFFFFFFFF), 0)
        peak, before = (best >> 32).to(tl.int32), (best & 0xFFFFFFFF).to(tl.int32)
    else:
        best = tl.max(tl.where(inside, (order & -65536) | (TILE - 1 - place), -0x7FFFFFFF), 0)
        peak, before = best & -65536, best & 65535
        peak = tl.where(peak < 0, peak | 65535, peak)
    value = (peak ^ ((peak >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    at = program * tl.num_programs(1) + tile
    tl.store(values_ptr + at, tl.where(peak >= _INFINITE, float("nan"), value))
    tl.store(tokens_ptr + at, tile * TILE + TILE - 1 - before)


@triton.jit
def best_of_tiles(value, token):
    """Return of each row of tiles [R, T] how many are NaN, the best score of the others, and its lowest token."""
    spoilt = tl.sum((value != value).to(tl.int32), 1)
    best = tl.max(tl.where(value == value, value, float("-inf")), 1)
    return spoilt, best, tl.min(tl.where(value == best[:, None], token, 2147483647), 1)
