"""Leaves the part of a split in memory, from within the loop over tiles of keys."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.span_attention.splits import oldest_seen, share_of, split_tiles

_INTERPRETED, _NARROW = tl.constexpr(INTERPRETED), tl.constexpr(128)


@triton.jit
def leave(
    part_of, last_tile, best, mass, sum_,
    HAS_BLOCK: tl.constexpr, GROUP: tl.constexpr, WINDOW: tl.constexpr, TOKENS: tl.constexpr, SPLITS: tl.constexpr,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Leave the part that ends with this tile, of the rows whose splits have that size.

    The first program's splits are one part, every other split is one of its own. All that says where parts lie is
    computed anew, because the loop around has no registers to keep it. Products of 16-bit numbers leave two
    neighbouring columns of a row in a thread's registers, which are stored as they are: `tl.store` would first bring
    them into another order through shared memory, where tiles loaded ahead need the room. Wide heads load few ahead.
    """
    partial_ptr, sums_ptr, q, length, total, size = part_of
    pair, row_tile = _unknown(tl.program_id(0)), _unknown(tl.program_id(2))
    row, column = row_tile * sum_.shape[0] + tl.arange(0, sum_.shape[0]), tl.arange(0, sum_.shape[1])
    stores = row < WIDTH * GROUP
    stores &= split_tiles(row, length, total, HAS_BLOCK, GROUP, WINDOW, TOKENS) == size
    _, ahead = share_of(0, length, total, size, WINDOW, TOKENS, SPLITS, PROGRAMS)
    slot = tl.maximum(last_tile // size - oldest_seen(length, WINDOW) // TOKENS // size - ahead + 1, 0)
    part = (pair.to(tl.int64) * PARTS + slot) * WIDTH * GROUP + row
    places, takes = partial_ptr + part[:, None] * SIZE + column[None, :], stores[:, None] & (column < SIZE)[None, :]
    if q.dtype.primitive_bitwidth == 16 and SIZE <= _NARROW and not _INTERPRETED:
        _store_pairs(places, sum_, takes)
        _store_both(sums_ptr + part * 2, best, mass, stores)
    else:
        tl.store(places, sum_, mask=takes)
        both = part[:, None] * 2 + tl.arange(0, 2)[None, :]
        tl.store(sums_ptr + both, tl.join(best, mass), mask=stores[:, None])


@triton.jit
def _unknown(number):
    """Return the number in a way that no compiler looks through, so that what follows stays where it is written."""
    if _INTERPRETED:
        return number
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [number], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def _store_pairs(places, numbers, takes):
    """Store a float32 tile whose threads hold even columns and their neighbours, in any order of these pairs."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred takes;
        .reg .b64 kept;
        createpolicy.fractional.L2::evict_last.b64 kept, 1.0;
        setp.ne.b32 takes, $6, 0;
        @takes st.global.L2::cache_hint.v2.b32 [$2], {$4, $5}, kept;
        mov.b32 $0, $4;
        mov.b32 $1, $5;
        }""",
        "=r,=r,l,l,r,r,r,r", [places.to(tl.int64), numbers, takes.to(tl.int32)],
        dtype=tl.float32, is_pure=False, pack=2,
    )  # fmt: skip


@triton.jit
def _store_both(places, first, second, takes):
    """Store two float32 numbers of each row, one behind the other."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred takes;
        setp.ne.b32 takes, $4, 0;
        @takes st.global.v2.b32 [$1], {$2, $3};
        mov.b32 $0, $2;
        }""",
        "=r,l,r,r,r", [places.to(tl.int64), first, second, takes.to(tl.int32)],
        dtype=tl.float32, is_pure=False, pack=1,
    )  # fmt: skip
