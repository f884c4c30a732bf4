"""The programs of span attention: query rows of one K/V head over a share of the positions, and the shares' merge."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.pdl import allow_next, await_previous

_FULL_TILE = tl.constexpr(64)


@triton.jit
def _share(total, SPLITS: tl.constexpr, TOKENS: tl.constexpr):
    """Return how many positions each split takes; the splits past the last position have none."""
    return tl.maximum(tl.cdiv(tl.cdiv(total, SPLITS), TOKENS), 1) * TOKENS


@triton.jit
def _range(base, reach, seen, SPLITS: tl.constexpr, TOKENS: tl.constexpr):
    """Return this program's first position, and the one behind its last; its rows see `seen` at most."""
    share = _share(reach - base, SPLITS, TOKENS)
    begin = base + tl.program_id(1) * share
    return begin, tl.minimum(begin + share, seen)


@triton.jit
def _middle(begin, end, seen_by_all, ENDS_APART: tl.constexpr, TOKENS: tl.constexpr):
    """Return where the pipelined tiles end; the rest, or the last tile if it `ENDS_APART`, is read without a pipeline.

    A single tile has nothing to load ahead, and starting a pipeline takes longer than the tile.
    """
    middle = end
    if ENDS_APART:
        middle = begin + tl.maximum(tl.minimum(end, seen_by_all) - begin, 0) // TOKENS * TOKENS
    return tl.where(end - begin <= TOKENS, begin, middle)


@triton.jit
def _first(length, WINDOW: tl.constexpr):
    """Return the first position that any row sees."""
    return tl.maximum(length + 1 - WINDOW, 0) if WINDOW > 0 else 0


@triton.jit
def attend_kernel(
    q_ptr, kv_ptr, block_k_ptr, block_v_ptr, table_ptr, lengths_ptr, reach_ptr, positions_ptr, ancestors_ptr,
    partial_ptr, sums_ptr, out_ptr, places, stride_table, columns, stride_kb, stride_kw, stride_kh, stride_vb,
    stride_vw, stride_vh, scale,
    BLOCK_SIZE: tl.constexpr, HAS_BLOCK: tl.constexpr, HAS_TREE: tl.constexpr, CAUSAL: tl.constexpr,
    TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr, SIZE_PAD: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Write the sums of a share, or the result where there is one share; grid (B * Hkv, SPLITS, row tiles)."""
    pair, split = tl.program_id(0), tl.program_id(1)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    row = tl.program_id(2) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, SIZE_PAD)
    fits = (row < WIDTH * GROUP)[:, None] & (column < SIZE)[None, :]
    q_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    # Lengths and tables are final before the first layer; queries and this span's own keys are not.
    length = tl.load(lengths_ptr + sequence).to(tl.int32)
    reach = tl.load(reach_ptr + sequence).to(tl.int32)
    room = columns * BLOCK_SIZE
    await_previous(PDL)
    q = tl.load(q_ptr + q_row[:, None] * SIZE + column[None, :], mask=fits, other=0.0)
    first_row = tl.program_id(2) * TILE // GROUP
    last_row = (tl.minimum(tl.program_id(2) * TILE + TILE, WIDTH * GROUP) - 1) // GROUP
    seen_by_all = tl.minimum(length, room) if HAS_BLOCK or HAS_TREE else length + first_row + 1
    total = reach if HAS_BLOCK else tl.minimum(reach, room)
    seen = total if HAS_BLOCK else tl.minimum(total, length + last_row + 1)
    begin, end = _range(_first(length, WINDOW), reach, seen, SPLITS, TOKENS)
    # With small tiles a branch for the last tile costs more than reading it without a pipeline.
    middle = _middle(begin, end, seen_by_all, HAS_BLOCK or HAS_TREE or TILE < _FULL_TILE, TOKENS)
    best = tl.full((TILE,), -1e30, dtype=WIDE)
    mass = tl.zeros((TILE,), dtype=WIDE)
    sum_ = tl.zeros((TILE, SIZE_PAD), dtype=WIDE)
    low = tl.zeros((TILE,), dtype=tl.int32)
    if WINDOW > 0:
        row_position = tl.load(positions_ptr + sequence * WIDTH + tl.minimum(row // GROUP, WIDTH - 1))
        low = row_position.to(tl.int32) + 1 - WINDOW
    row_table_ptr, values_ptr = table_ptr + sequence * stride_table, kv_ptr + places * KV_HEADS * SIZE
    bits_ptr = ancestors_ptr + sequence * WIDTH
    if middle > begin:
        for first in range(begin, middle, TOKENS):
            position = first + tl.arange(0, TOKENS)
            # Past the end the last position is read again, because other memory might hold NaN.
            read = tl.minimum(position, middle - 1).to(tl.uint32)
            block = tl.load(row_table_ptr + read // BLOCK_SIZE)
            place, reads = _place(block, read, head, BLOCK_SIZE, KV_HEADS, SIZE), _reads(block, column, SIZE)
            k = tl.load(kv_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
            v = tl.load(values_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee").to(WIDE) * scale
            if (first + TOKENS > seen_by_all) | (WINDOW > 0):
                sees = _sees(position, row, length, total, low, bits_ptr, CAUSAL, HAS_TREE, WINDOW, WIDTH, GROUP)
                scores = tl.where(sees, scores, float("-inf"))
            best, mass, sum_ = _take(scores, v, best, mass, sum_)
    for first in tl.range(tl.maximum(begin, middle), end, TOKENS, num_stages=1):
        position = first + tl.arange(0, TOKENS)
        paged = position < tl.minimum(length if HAS_BLOCK else total, room)
        read = position.to(tl.uint32)
        block = tl.load(row_table_ptr + read // BLOCK_SIZE, mask=paged, other=0)
        place, reads = _place(block, read, head, BLOCK_SIZE, KV_HEADS, SIZE), _reads(block, column, SIZE)
        k = tl.load(kv_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
        v = tl.load(values_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
        if HAS_BLOCK:
            own = (position >= length) & (position < total)
            takes = own[:, None] & (column < SIZE)[None, :]
            k_at = sequence * stride_kb + (position - length) * stride_kw + head * stride_kh
            v_at = sequence * stride_vb + (position - length) * stride_vw + head * stride_vh
            k += tl.load(block_k_ptr + k_at[:, None] + column[None, :], mask=takes, other=0.0)
            v += tl.load(block_v_ptr + v_at[:, None] + column[None, :], mask=takes, other=0.0)
        sees = _sees(position, row, length, total, low, bits_ptr, CAUSAL, HAS_TREE, WINDOW, WIDTH, GROUP)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee").to(WIDE) * scale
        best, mass, sum_ = _take(tl.where(sees, scores, float("-inf")), v, best, mass, sum_)
    allow_next(PDL)
    known_row = row < WIDTH * GROUP
    if SPLITS == 1:
        value = sum_ / tl.where(mass > 0, mass, 1.0)[:, None]
        tl.store(out_ptr + q_row[:, None] * SIZE + column[None, :], value.to(out_ptr.dtype.element_ty), mask=fits)
    else:
        target = (pair * SPLITS + split).to(tl.int64) * WIDTH * GROUP + row
        used = (begin < reach) | (split == 0)
        tl.store(partial_ptr + target[:, None] * SIZE + column[None, :], sum_, mask=fits & used)
        both = target[:, None] * 2 + tl.arange(0, 2)[None, :]
        tl.store(sums_ptr + both, tl.join(best, mass), mask=(known_row & used)[:, None])


@triton.jit
def _sees(
    position, row, length, total, low, bits_ptr,
    CAUSAL: tl.constexpr, HAS_TREE: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Return which rows see which positions: those of their path, of their block, or up to their own."""
    sees = (position < total)[None, :]
    if HAS_TREE:
        bits = tl.load(bits_ptr + row // GROUP, mask=row < WIDTH * GROUP, other=0)
        sees &= (position < length)[None, :] | _has(bits, position - length)
    elif CAUSAL:
        sees &= position[None, :] <= length + (row // GROUP)[:, None]
    if WINDOW > 0:
        # A row of a tree is stored at another place than its position.
        sees &= (position[None, :] >= low[:, None]) | ((position >= length)[None, :] & HAS_TREE)
    return sees


@triton.jit
def _has(bits, index):
    """Whether each row's word holds each bit; bits outside of it are not held."""
    inside = (index >= 0) & (index < 64)
    return ((bits[:, None] >> tl.where(inside, index, 0).to(tl.int64)[None, :]) & 1 != 0) & inside[None, :]


@triton.jit
def _place(block, position, head, BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr):
    """Return where a head's keys of some positions begin: a row's number fits 32 bits, its offset may not."""
    head_row = (block * BLOCK_SIZE + (position % BLOCK_SIZE).to(tl.int32)) * KV_HEADS + head
    return head_row.to(tl.int64) * SIZE


@triton.jit
def _reads(block, column, SIZE: tl.constexpr):
    """Return which elements may be read: the pad block may hold NaN, and zero times NaN is NaN."""
    return (block != 0)[:, None] & (column < SIZE)[None, :]


@triton.jit
def _take(scores, v, best, mass, sum_):
    """Add a tile of positions to the running softmax, which is in powers of two; `best` is never infinite."""
    higher = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(best - higher)
    faded = sum_ * fade[:, None]
    sum_ = tl.dot(weights.to(v.dtype), v, faded, input_precision="ieee", out_dtype=sum_.dtype)
    return higher, mass * fade + tl.sum(weights, 1), sum_


@triton.jit
def merge_kernel(
    partial_ptr, sums_ptr, out_ptr, lengths_ptr, reach_ptr, ROWS: tl.constexpr, PARTS: tl.constexpr,
    TOKENS: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr, SPLITS: tl.constexpr, SIZE_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Merge the sums of a row's shares; grid (B * Hkv, row tiles)."""
    pair = tl.program_id(0)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE_PAD)
    known = row < WIDTH * GROUP
    fits = known[:, None] & (column < SIZE)[None, :]
    total = tl.load(reach_ptr + sequence).to(tl.int32)
    if WINDOW > 0:
        total -= _first(tl.load(lengths_ptr + sequence).to(tl.int32), WINDOW)
    await_previous(PDL)
    used = tl.maximum(tl.cdiv(total, _share(total, SPLITS, TOKENS)), 1)
    begin = pair.to(tl.int64) * SPLITS * WIDTH * GROUP
    sums_ptr, partial_ptr = sums_ptr + begin * 2, partial_ptr + begin * SIZE
    # The first parts are loaded before the wait for their weights.
    part_best, part = _parts(partial_ptr, sums_ptr, row, known, column, 0, used, PARTS, WIDTH * GROUP, SIZE)
    split = tl.arange(0, SPLITS)
    at = (split * WIDTH * GROUP)[None, :] + row[:, None]
    read = known[:, None] & (split < used)[None, :]
    best = tl.load(sums_ptr + at * 2, mask=read, other=-1e30)
    masses = tl.load(sums_ptr + at * 2 + 1, mask=read, other=0.0)
    highest = tl.max(best, 1)
    mass = tl.sum(tl.exp2(best - highest[:, None]) * masses, 1)
    sum_ = tl.sum(tl.exp2(part_best - highest[:, None])[:, :, None] * part, 1)
    if SPLITS > PARTS:
        for first in range(PARTS, used, PARTS):
            part_best, part = _parts(partial_ptr, sums_ptr, row, known, column, first, used, PARTS, WIDTH * GROUP, SIZE)
            sum_ += tl.sum(tl.exp2(part_best - highest[:, None])[:, :, None] * part, 1)
    allow_next(PDL)
    value = sum_ / tl.where(mass > 0, mass, 1.0)[:, None]
    out_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    tl.store(out_ptr + out_row[:, None] * SIZE + column[None, :], value.to(out_ptr.dtype.element_ty), mask=fits)


@triton.jit
def _parts(
    partial_ptr, sums_ptr, row, known, column, first, used,
    PARTS: tl.constexpr, ROWS_OF_PAIR: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return the highest scores [R, PARTS] and the sums [R, PARTS, SIZE_PAD] of some shares of rows [R]."""
    index = first + tl.arange(0, PARTS)
    place = (index * ROWS_OF_PAIR)[None, :] + row[:, None]
    exists = known[:, None] & (index < used)[None, :]
    best = tl.load(sums_ptr + place * 2, mask=exists, other=-1e30)
    reads = exists[:, :, None] & (column < SIZE)[None, None, :]
    return best, tl.load(partial_ptr + place[:, :, None] * SIZE + column[None, None, :], mask=reads, other=0.0)
