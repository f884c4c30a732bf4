"""Keeps the rows of a span, as projected, at their position modulo the ring's rows."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl


@triton.jit
def keep_rows(
    into_ptr, ring_ptr, slot, sequence, length, reach, share,
    SHARES: tl.constexpr, width, RING: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Copy a share of the columns of the rows below `reach`, or of the last that the ring has room for."""
    COLUMNS: tl.constexpr = ((KEPT + SHARES - 1) // SHARES + 7) // 8 * 8
    TILE: tl.constexpr = 64 if COLUMNS <= 64 else 128 if COLUMNS <= 128 else 256
    for first_row in range(tl.maximum(reach - RING, length), reach, 16):
        at = first_row + tl.arange(0, 16)
        new_ptr = into_ptr + (sequence * width + (at - length)) * FEATURES
        old_ptr = ring_ptr + (slot * RING + at % RING) * KEPT
        for first in tl.static_range(0, COLUMNS, TILE):
            offset = first + tl.arange(0, TILE)
            column = share * COLUMNS + offset
            there = (at < reach)[:, None] & ((offset < COLUMNS) & (column < KEPT))[None, :]
            row = tl.load(new_ptr[:, None] + column[None, :], mask=there, other=0.0)
            tl.store(old_ptr[:, None] + column[None, :], row, mask=there)
