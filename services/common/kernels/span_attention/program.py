"""The program of span attention: query rows of one K/V head over one split of the positions, or over all of them."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.kv_codes.kernel import scaled, widened
from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.span_attention.parts import leave
from services.common.kernels.span_attention.softmax import NOTHING, fold, highest, mean, nothing, take
from services.common.kernels.span_attention.splits import lengths_of, oldest_seen, share_of, split_tiles

_FULL_TILE = tl.constexpr(64)


@triton.jit
def attend_kernel(
    q_ptr, kv_ptr, exponents_ptr, block_k_ptr, block_v_ptr, table_ptr, lengths_ptr, reach_ptr, positions_ptr,
    partial_ptr, sums_ptr, out_ptr, places, stride_table, columns, stride_kb, stride_kw, stride_kh,
    stride_vb, stride_vw, stride_vh, scale,
    BLOCK_SIZE: tl.constexpr, HAS_BLOCK: tl.constexpr, CAUSAL: tl.constexpr,
    TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr, PROGRAMS: tl.constexpr,
    SIZE_PAD: tl.constexpr, PARTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the result, or the parts of splits that a second launch adds; grid (B * Hkv, PROGRAMS, row tiles).

    One program takes all splits, or several have a share each. The first adds its own to one part, others leave each
    apart. Rows of a tile may have splits of two sizes: a program with a share takes both in turn, but one of all has no
    registers for that, and there are twice as many. K/V of eight bits are codes, and have exponents beside them.
    """
    PASSES: tl.constexpr = 2 if PROGRAMS == 1 else 1
    pair, program = tl.program_id(0), 0 if PROGRAMS == 1 else tl.program_id(1)
    row_tile, second = tl.program_id(2) // PASSES, tl.program_id(2) % PASSES
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    row, column = row_tile * TILE + tl.arange(0, TILE), tl.arange(0, SIZE_PAD)
    fits = (row < WIDTH * GROUP)[:, None] & (column < SIZE)[None, :]
    q_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    # Lengths and tables are final before the first layer; queries and this span's own keys are not.
    room = columns * BLOCK_SIZE
    length, reach = lengths_of(lengths_ptr + sequence, reach_ptr + sequence, room, WIDTH)
    await_previous(PDL)
    q = tl.load(q_ptr + q_row[:, None] * SIZE + column[None, :], mask=fits, other=0.0)
    first_row, last_row = row_tile * TILE, tl.minimum(row_tile * TILE + TILE, WIDTH * GROUP) - 1
    seen_by_all = tl.minimum(length, room) if HAS_BLOCK else length + first_row // GROUP + 1
    total = reach if HAS_BLOCK else tl.minimum(reach, room)
    seen = total if HAS_BLOCK else tl.minimum(total, length + last_row // GROUP + 1)
    oldest = oldest_seen(length, WINDOW)
    if PROGRAMS == 1 and WINDOW > 0 and not HAS_BLOCK:
        # Rows of padding have windows behind the end.
        oldest = tl.minimum(oldest_seen(length + first_row // GROUP, WINDOW), tl.maximum(total - 1, 0))
    low = tl.zeros((TILE,), dtype=tl.int32)
    if WINDOW > 0:
        row_position = tl.load(positions_ptr + sequence * WIDTH + tl.minimum(row // GROUP, WIDTH - 1))
        low = row_position.to(tl.int32) + 1 - WINDOW
    least = split_tiles(first_row, length, total, HAS_BLOCK, GROUP, WINDOW, TOKENS)
    most = split_tiles(last_row, length, total, HAS_BLOCK, GROUP, WINDOW, TOKENS)
    row_table_ptr = table_ptr + sequence * stride_table
    out_ptrs = out_ptr + q_row[:, None] * SIZE + column[None, :]
    tile_of = (
        q, kv_ptr, exponents_ptr, block_k_ptr, block_v_ptr, row_table_ptr, partial_ptr, sums_ptr, out_ptrs,
        row, column, low, sequence, head, program, length, total, seen, seen_by_all, oldest, room, places, stride_kb,
        stride_kw, stride_kh, stride_vb, stride_vw, stride_vh, scale,
    )  # fmt: skip
    if PROGRAMS == 1:
        if (second == 0) | (most > least):
            size = tl.where(second == 0, least, most)
            first = oldest // TOKENS // size
            _attend(
                tile_of, size, first, first + SPLITS, BLOCK_SIZE, HAS_BLOCK, CAUSAL, TILE, TOKENS, WIDE,
                WINDOW, WIDTH, GROUP, KV_HEADS, SIZE, SPLITS, SIZE_PAD, PARTS, PROGRAMS,
            )  # fmt: skip
    else:
        for size in tl.range(least, most + 1, tl.maximum(most - least, 1), num_stages=1):
            first = oldest // TOKENS // size
            begin, behind = share_of(program, length, total, size, WINDOW, TOKENS, SPLITS, PROGRAMS)
            _attend(
                tile_of, size, first + begin, first + behind, BLOCK_SIZE, HAS_BLOCK, CAUSAL, TILE, TOKENS,
                WIDE, WINDOW, WIDTH, GROUP, KV_HEADS, SIZE, SPLITS, SIZE_PAD, PARTS, PROGRAMS,
            )  # fmt: skip
    allow_next(PDL)


@triton.jit
def _attend(
    tile_of, size, first_split, behind,
    BLOCK_SIZE: tl.constexpr, HAS_BLOCK: tl.constexpr, CAUSAL: tl.constexpr,
    TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr, SIZE_PAD: tl.constexpr,
    PARTS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Do what `attend_kernel` does for the rows whose splits have `size` tiles, from the first split to `behind`."""
    (
        q, kv_ptr, exponents_ptr, block_k_ptr, block_v_ptr, row_table_ptr, partial_ptr, sums_ptr, out_ptrs,
        row, column, low, sequence, head, program, length, total, seen, seen_by_all, oldest, room, places, stride_kb,
        stride_kw, stride_kh, stride_vb, stride_vw, stride_vh, scale,
    ) = tile_of  # fmt: skip
    begin = tl.maximum(oldest // TOKENS, first_split * size)
    # Rows with splits of this size see no tile behind the last of them.
    end = tl.minimum(tl.minimum(behind, oldest // TOKENS // size + SPLITS) * size, tl.cdiv(seen, TOKENS))
    # With small tiles a branch for the last tile costs more than reading it without a pipeline.
    middle = end
    if HAS_BLOCK or TILE < _FULL_TILE:
        middle = tl.minimum(end, tl.minimum(seen, seen_by_all) // TOKENS)
    # A single tile has nothing to load ahead, and starting a pipeline takes longer than the tile.
    middle = tl.where(end - begin <= 1, begin, middle)
    # What is the same for all tiles is added first, so that the loop adds one number.
    keys_ptrs = kv_ptr + head * SIZE + column[None, :]
    values_ptrs = keys_ptrs + places * KV_HEADS * SIZE
    key_exponents_ptr = exponents_ptr + head
    value_exponents_ptr = key_exponents_ptr + places * KV_HEADS
    known = (column < SIZE)[None, :]
    best, mass, sum_ = nothing(TILE, SIZE_PAD, WIDE)
    whole_best, whole_mass, whole_sum = best, tl.max(mass, 1), sum_
    part_of = (partial_ptr, sums_ptr, q, length, total, size)
    edge = (begin // size + 1) * size
    if middle > begin:
        ahead = _ahead(kv_ptr, begin, row_table_ptr, seen, oldest, BLOCK_SIZE, WINDOW, TOKENS, KV_HEADS, SIZE)
        k_exponent, v_exponent = _exponents(kv_ptr, key_exponents_ptr, value_exponents_ptr, ahead)
        ahead = _ahead(kv_ptr, begin + 1, row_table_ptr, seen, oldest, BLOCK_SIZE, WINDOW, TOKENS, KV_HEADS, SIZE)
        for tile in range(begin, middle):
            position = tile * TOKENS + tl.arange(0, TOKENS)
            read = _read(tile, seen, oldest, WINDOW, TOKENS)
            block = tl.load(row_table_ptr + read // BLOCK_SIZE)
            place = _place(block, read, BLOCK_SIZE, KV_HEADS, SIZE)
            k = tl.load(keys_ptrs + place[:, None], mask=known, other=0.0)
            v = tl.load(values_ptrs + place[:, None], mask=known, other=0.0)
            k, v = scaled(k, k_exponent, q.dtype), scaled(v, v_exponent, q.dtype)
            k_exponent, v_exponent = _exponents(kv_ptr, key_exponents_ptr, value_exponents_ptr, ahead)
            ahead = _ahead(kv_ptr, tile + 2, row_table_ptr, seen, oldest, BLOCK_SIZE, WINDOW, TOKENS, KV_HEADS, SIZE)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee").to(WIDE)
            if (tile * TOKENS + TOKENS > seen_by_all) | (WINDOW > 0):
                sees = _sees(position, row, length, total, low, CAUSAL, WINDOW, WIDTH, GROUP)
                scores = tl.where(sees, scores, float("-inf"))
            top = highest(scores, scale)
            best, edge, whole_best, whole_mass, whole_sum = _end_split(
                part_of, program, tile, edge, size, top, best, mass, sum_, whole_best, whole_mass, whole_sum,
                HAS_BLOCK, GROUP, WINDOW, TOKENS, SPLITS, WIDTH, SIZE, PARTS, PROGRAMS,
            )  # fmt: skip
            best, mass, sum_ = take(scores, top, v, scale, best, mass, sum_)
    for tile in tl.range(tl.maximum(begin, middle), end, num_stages=1):
        position = tile * TOKENS + tl.arange(0, TOKENS)
        paged = (position >= oldest) & (position < tl.minimum(length if HAS_BLOCK else total, room))
        read = position.to(tl.uint32)
        block = tl.load(row_table_ptr + read // BLOCK_SIZE, mask=paged, other=0)
        place, reads = _place(block, read, BLOCK_SIZE, KV_HEADS, SIZE), (block != 0)[:, None] & known
        k = tl.load(keys_ptrs + place[:, None], mask=reads, other=0.0)
        v = tl.load(values_ptrs + place[:, None], mask=reads, other=0.0)
        k = widened(k, key_exponents_ptr, place, block != 0, q.dtype, SIZE)
        v = widened(v, value_exponents_ptr, place, block != 0, q.dtype, SIZE)
        own = ((position >= length) & (position < total))[:, None] & (column < SIZE)[None, :]
        k = _with_own(
            k, block_k_ptr, sequence, position - length, head, column, own, stride_kb, stride_kw, stride_kh, HAS_BLOCK
        )
        v = _with_own(
            v, block_v_ptr, sequence, position - length, head, column, own, stride_vb, stride_vw, stride_vh, HAS_BLOCK
        )
        sees = _sees(position, row, length, total, low, CAUSAL, WINDOW, WIDTH, GROUP)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee").to(WIDE)
        scores = tl.where(sees, scores, float("-inf"))
        top = highest(scores, scale)
        best, edge, whole_best, whole_mass, whole_sum = _end_split(
            part_of, program, tile, edge, size, top, best, mass, sum_, whole_best, whole_mass, whole_sum,
            HAS_BLOCK, GROUP, WINDOW, TOKENS, SPLITS, WIDTH, SIZE, PARTS, PROGRAMS,
        )  # fmt: skip
        best, mass, sum_ = take(scores, top, v, scale, best, mass, sum_)
    mass = tl.max(mass, 1)
    if PROGRAMS < SPLITS:
        best, mass, sum_ = fold(whole_best, whole_mass, whole_sum, best, mass, sum_)
    if PROGRAMS == 1:
        stores = (row < WIDTH * GROUP) & (end > begin)
        stores &= split_tiles(row, length, total, HAS_BLOCK, GROUP, WINDOW, TOKENS) == size
        tl.store(out_ptrs, mean(mass[:, None], sum_, out_ptrs), mask=stores[:, None] & known)
    elif end > begin:
        leave(
            part_of, end - 1, best, mass, sum_,
            HAS_BLOCK, GROUP, WINDOW, TOKENS, SPLITS, WIDTH, SIZE, PARTS, PROGRAMS,
        )  # fmt: skip


@triton.jit
def _end_split(
    part_of, program, tile, edge, size, top, best, mass, sum_, whole_best, whole_mass, whole_sum,
    HAS_BLOCK: tl.constexpr, GROUP: tl.constexpr, WINDOW: tl.constexpr, TOKENS: tl.constexpr, SPLITS: tl.constexpr,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """At the edge of a split, fold it or leave its part, and begin a part anew: what the sums hold fades to zero.

    `top` changes nothing. Because of it a split ends after the next tile's scores, and its products may take until
    then.
    """
    if PROGRAMS < SPLITS:
        ends = tile == edge
        if ends:
            if program == 0:
                whole_best, whole_mass, whole_sum = fold(whole_best, whole_mass, whole_sum, best, tl.max(mass, 1), sum_)
            else:
                leave(
                    part_of, tile - 1, best, tl.max(mass, 1), sum_,
                    HAS_BLOCK, GROUP, WINDOW, TOKENS, SPLITS, WIDTH, SIZE, PARTS, PROGRAMS,
                )  # fmt: skip
            best, edge = tl.maximum(tl.minimum(top, NOTHING), NOTHING), edge + size
    return best, edge, whole_best, whole_mass, whole_sum


@triton.jit
def _with_own(
    paged, rows_ptr, sequence, index, head, column, takes, stride_sequence, stride_row, stride_head,
    HAS_BLOCK: tl.constexpr,
):  # fmt: skip
    """Add rows of the span itself, which are zero in paged memory."""
    if HAS_BLOCK:
        at = sequence * stride_sequence + index * stride_row + head * stride_head
        paged += tl.load(rows_ptr + at[:, None] + column[None, :], mask=takes, other=0.0)
    return paged


@triton.jit
def _sees(
    position, row, length, total, low,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Return which rows see which positions: those of their block, or up to their own."""
    sees = (position < total)[None, :]
    if CAUSAL:
        sees &= position[None, :] <= length + (row // GROUP)[:, None]
    if WINDOW > 0:
        sees &= position[None, :] >= low[:, None]
    return sees


@triton.jit
def _read(tile, seen, oldest, WINDOW: tl.constexpr, TOKENS: tl.constexpr):
    """Return the positions that are read for a tile.

    Past the ends the first or last position is read again, because other memory might hold NaN. Up to there a sequence
    has its blocks; one without is padding, and its rows count for nothing.
    """
    read = tl.minimum(tile * TOKENS + tl.arange(0, TOKENS), seen - 1)
    if WINDOW > 0:
        read = tl.maximum(read, oldest)
    return read.to(tl.uint32)


@triton.jit
def _ahead(
    kv_ptr, tile, row_table_ptr, seen, oldest,
    BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr, TOKENS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return where the exponents of a tile of codes lie. It is asked for two tiles ahead, and they are read one ahead.

    No copy runs ahead for single bytes, so a tile would wait for its block, and then for its exponents.
    """
    place = 0
    if kv_ptr.dtype.element_ty == tl.int8:
        read = _read(tile, seen, oldest, WINDOW, TOKENS)
        place = _place(tl.load(row_table_ptr + read // BLOCK_SIZE), read, BLOCK_SIZE, KV_HEADS, SIZE) // SIZE
    return place


@triton.jit
def _exponents(kv_ptr, key_exponents_ptr, value_exponents_ptr, place):
    """Return the exponents of codes; numbers have none."""
    of_keys, of_values = 0, 0
    if kv_ptr.dtype.element_ty == tl.int8:
        of_keys, of_values = tl.load(key_exponents_ptr + place), tl.load(value_exponents_ptr + place)
    return of_keys, of_values


@triton.jit
def _place(block, position, BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr):
    """Return where the keys of positions begin: a row's number fits 32 bits, its offset may not."""
    row = block * (BLOCK_SIZE * KV_HEADS) + (position % BLOCK_SIZE).to(tl.int32) * KV_HEADS
    return row.to(tl.int64) * SIZE
