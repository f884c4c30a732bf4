"""Where the positions that a row sees are split: by the row's own position alone, whatever runs beside it.

A row sees at most 16 whole splits, of equal numbers of key tiles. Their size follows the row's position in steps of at
most a quarter, so the program of a split has little more to do than a sixteenth of the context.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED

TILE_TOKENS = 16 if INTERPRETED else 64
"""Positions of a tile of keys; a tile begins at a multiple of it."""
MOST_SPLITS = 4 if INTERPRETED else 16
_MOST = tl.constexpr(MOST_SPLITS)
_DIGITS = 3
_WIDE_HEAD = 256


def tile_tokens(size: int) -> int:
    """Return the positions of a tile of keys of heads of `size`: of the widest, shared memory holds half as many."""
    return TILE_TOKENS if INTERPRETED or size <= _WIDE_HEAD else TILE_TOKENS // 2


def split_tokens(seen: int, tokens: int = TILE_TOKENS) -> int:
    """Return the positions of a split for a row that sees so many; splits begin at multiples of it."""
    tiles = max(seen - 1, 0) // (MOST_SPLITS * tokens) + 1
    shift = max(tiles.bit_length() - _DIGITS, 0)
    return (tiles + (1 << shift) - 1 >> shift << shift) * tokens


def split_count(window: int, width: int = 1, tokens: int = TILE_TOKENS) -> int:
    """Return how many splits so many rows in a row see at most; a window need not begin where a split does."""
    if not window:
        return MOST_SPLITS
    return max(MOST_SPLITS + 1, (window + width - 3) // split_tokens(window, tokens) + 2)


def part_count(splits: int, programs: int) -> int:
    """Return how many parts programs leave that share so many splits: the first adds up its own."""
    return splits - -(-splits // programs) + 1


@triton.jit
def split_tiles(
    row, length, total, HAS_BLOCK: tl.constexpr, GROUP: tl.constexpr, WINDOW: tl.constexpr, TOKENS: tl.constexpr
):  # fmt: skip
    """Return the tiles of a split of rows, by the last position that they see, or by the positions of a window."""
    last = last_seen(row, length, total, HAS_BLOCK, GROUP)
    if WINDOW > 0:
        last = tl.minimum(last, WINDOW - 1)
    return size_of_split(last, TOKENS)


@triton.jit
def size_of_split(last, TOKENS: tl.constexpr):
    """Return the tiles of a split of rows that see up to these positions."""
    tiles = tl.maximum(last, 0) // (TOKENS * _MOST) + 1
    # A float's exponent is the number of binary digits less one.
    exponent = (tiles.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
    shift = tl.maximum(exponent - 2, 0)
    # Three digits, rounded up.
    return tiles + (tiles * 0 + 1 << shift) - 1 >> shift << shift


@triton.jit
def last_seen(row, length, total, HAS_BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Return the last position that a row sees; what a mask hides before it counts as seen."""
    return row * 0 + total - 1 if HAS_BLOCK else tl.minimum(length + row // GROUP, total - 1)


@triton.jit
def oldest_seen(length, WINDOW: tl.constexpr):
    """Return the first position that any row of a sequence sees."""
    return tl.maximum(length + 1 - WINDOW, 0) if WINDOW > 0 else length * 0


@triton.jit
def lengths_of(length_ptr, reach_ptr, room, WIDTH: tl.constexpr):
    """Return a sequence's length and reach, as far as its table goes."""
    return tl.minimum(tl.load(length_ptr).to(tl.int32), room), tl.minimum(tl.load(reach_ptr).to(tl.int32), room + WIDTH)


@triton.jit
def share_of(
    program, length, total, size,
    WINDOW: tl.constexpr, TOKENS: tl.constexpr, SPLITS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Return which of a sequence's splits a program takes: the first, and the one behind its last.

    Earlier programs take one more where shares differ. No share changes a bit.
    """
    count = (total - 1) // TOKENS // size - oldest_seen(length, WINDOW) // TOKENS // size + 1
    # What is behind them is seen by rows with greater splits.
    count = tl.minimum(count, SPLITS)
    return tl.cdiv(program * count, PROGRAMS), tl.cdiv((program + 1) * count, PROGRAMS)
