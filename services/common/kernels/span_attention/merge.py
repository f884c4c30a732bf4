"""The program that adds the parts of a row, which the programs of its splits left in memory."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.span_attention.softmax import NOTHING, mean, power
from services.common.kernels.span_attention.splits import last_seen, lengths_of, oldest_seen, share_of, split_tiles

_MERGE_ROWS, _MERGE_WARPS = 16 if INTERPRETED else 1, 1
"""The interpreter takes as long over a row as over sixteen."""
_MANY_MERGE_ROWS, _MANY_MERGE_WARPS = 4, 4
_MANY_MERGES = 264


def merge_rows(pairs: int, rows: int) -> tuple[int, int]:
    """Return rows and warps of a merging program; launching many small programs would take longer than their work."""
    many = pairs * rows >= _MANY_MERGES * _MANY_MERGE_ROWS
    return (_MANY_MERGE_ROWS, _MANY_MERGE_WARPS) if many else (_MERGE_ROWS, _MERGE_WARPS)


@triton.jit
def merge_kernel(
    partial_ptr, sums_ptr, out_ptr, lengths_ptr, reach_ptr, room,
    HAS_BLOCK: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr, TOKENS: tl.constexpr, WINDOW: tl.constexpr,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr,
    SIZE_PAD: tl.constexpr, PDL: tl.constexpr, SPLITS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Add the parts of what a row sees, in order; grid (B * Hkv, row tiles)."""
    pair = tl.program_id(0)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE_PAD)
    known = row < WIDTH * GROUP
    length, reach = lengths_of(lengths_ptr + sequence, reach_ptr + sequence, room, WIDTH)
    oldest, total = oldest_seen(length, WINDOW), reach if HAS_BLOCK else tl.minimum(reach, room)
    size = split_tiles(row, length, total, HAS_BLOCK, GROUP, WINDOW, TOKENS)
    last = last_seen(row, length, total, HAS_BLOCK, GROUP)
    count = tl.where(known, last // TOKENS // size - oldest // TOKENS // size + 1, 0)
    # What the first program took is one part.
    _, ahead = share_of(0, length, total, size, WINDOW, TOKENS, SPLITS, PROGRAMS)
    count = tl.where(known, tl.maximum(count - ahead, 0) + 1, 0)
    await_previous(PDL)
    base = pair.to(tl.int64) * PARTS * WIDTH * GROUP + row
    mass, sum_ = added_parts(partial_ptr, sums_ptr, base, count, ROWS, WIDE, WIDTH, GROUP, SIZE, SIZE_PAD, PARTS)
    allow_next(PDL)
    out_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    fits = known[:, None] & (column < SIZE)[None, :]
    out_ptrs = out_ptr + out_row[:, None] * SIZE + column[None, :]
    tl.store(out_ptrs, mean(mass[:, None], sum_, out_ptrs), mask=fits)


@triton.jit
def added_parts(
    partial_ptr, sums_ptr, base, count,
    ROWS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Return mass [ROWS] and sum [ROWS, SIZE_PAD] of so many parts of each row, whose first ones lie at `base`."""
    column = tl.arange(0, SIZE_PAD)
    best = tl.full((ROWS,), NOTHING, dtype=WIDE)
    for slot in tl.static_range(PARTS):
        at = (base + slot * WIDTH * GROUP) * 2
        best = tl.maximum(best, tl.load(sums_ptr + at, mask=slot < count, other=NOTHING))
    mass = tl.zeros((ROWS,), dtype=WIDE)
    sum_ = tl.zeros((ROWS, SIZE_PAD), dtype=WIDE)
    for slot in tl.static_range(PARTS):
        at, exists = base + slot * WIDTH * GROUP, slot < count
        takes = exists[:, None] & (column < SIZE)[None, :]
        part = tl.load(partial_ptr + at[:, None] * SIZE + column[None, :], mask=takes, other=0.0)
        factor = power(tl.load(sums_ptr + at * 2, mask=exists, other=NOTHING) - best)
        mass = tl.fma(tl.load(sums_ptr + at * 2 + 1, mask=exists, other=0.0), factor, mass)
        sum_ = tl.fma(part, tl.broadcast_to(factor[:, None], part.shape), sum_)
    return mass, sum_
