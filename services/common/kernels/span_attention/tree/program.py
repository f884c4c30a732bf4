"""The programs of attention along trees: splits that all nodes see alike, and the end of each node's own path.

A node at depth d has the position of its depth, and its keys lie in the place of its row. A row's bits are those of
plain decoding if each key stands in the tile, and at the place in it, of its position. Tiles below a sequence's length
hold what they hold in a chain. So splits that end below it are computed for all rows together, without a mask. The
split in which the length lies, and the one behind it, are computed for each node: keys from the length on are gathered
along its lineage. Who computes a split changes no bit, and parts are added in the order of splits.

Of many sequences programs of some nodes each take all that these see, and leave no parts: reading a context a few times
from L2 takes less than a second launch.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.kv_codes.kernel import widened
from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.span_attention.merge import added_parts
from services.common.kernels.span_attention.softmax import NOTHING, fold, highest, mean, nothing, take
from services.common.kernels.span_attention.splits import size_of_split

STEP = 16
"""Positions whose values a matrix instruction adds at once."""
_STEP = tl.constexpr(STEP)


@triton.jit
def tree_kernel(
    q_ptr, kv_ptr, exponents_ptr, table_ptr, lengths_ptr, positions_ptr, lineage_ptr, partial_ptr, sums_ptr, out_ptr,
    places, stride_table, columns, scale,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, NODES: tl.constexpr, STEPS: tl.constexpr, NODE_TILE: tl.constexpr,
    TOKENS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, SPLITS: tl.constexpr, PROGRAMS: tl.constexpr, PARTS: tl.constexpr,
    ALONE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Leave the parts of splits; grid (B * Hkv, W / NODES * tiles of a node's heads + PROGRAMS * row tiles).

    What takes longest begins first: of a short context nothing is left to the others. Where nodes are ALONE there are
    no others, and results are left.
    """
    pair, program = tl.program_id(0), tl.program_id(1)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    room = columns * BLOCK_SIZE
    length = tl.minimum(tl.load(lengths_ptr + sequence).to(tl.int32), room)
    await_previous(PDL)
    memory = (
        q_ptr, positions_ptr + sequence * WIDTH, kv_ptr + head * SIZE, exponents_ptr + head,
        table_ptr + sequence * stride_table, places * KV_HEADS, scale, sequence, head, length, room,
    )  # fmt: skip
    parts = (out_ptr, sums_ptr, pair) if ALONE else (partial_ptr, sums_ptr, pair)
    OWN: tl.constexpr = ((WIDTH + NODES - 1) // NODES) * ((GROUP + NODE_TILE - 1) // NODE_TILE)
    if not ALONE and program >= OWN:
        _share(
            memory, parts, (program - OWN) // PROGRAMS, (program - OWN) % PROGRAMS, BLOCK_SIZE, TILE, TOKENS, WIDE,
            WIDTH, GROUP, KV_HEADS, SIZE, SIZE_PAD, SPLITS, PROGRAMS, PARTS,
        )  # fmt: skip
    else:
        _paths(
            memory, parts, lineage_ptr, program, BLOCK_SIZE, NODES, STEPS, NODE_TILE, TOKENS, WIDE, WIDTH,
            GROUP, KV_HEADS, SIZE, SIZE_PAD, PROGRAMS, PARTS, ALONE,
        )  # fmt: skip
    allow_next(PDL)


@triton.jit
def merge_tree_kernel(
    partial_ptr, sums_ptr, out_ptr, lengths_ptr, positions_ptr, room,
    ROWS: tl.constexpr, WIDE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, PARTS: tl.constexpr, PROGRAMS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Add the parts of what a row sees, in order; grid (B * Hkv, row tiles)."""
    pair = tl.program_id(0)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE_PAD)
    known = row < WIDTH * GROUP
    length = tl.minimum(tl.load(lengths_ptr + sequence).to(tl.int32), room)
    position = tl.load(positions_ptr + sequence * WIDTH + tl.minimum(row // GROUP, WIDTH - 1)).to(tl.int32)
    last = tl.minimum(position, room - 1)
    size = size_of_split(last, TOKENS)
    count = tl.where(known, _slot_of(last // TOKENS // size, length, size, TOKENS, PROGRAMS) + 1, 0)
    await_previous(PDL)
    base = pair.to(tl.int64) * PARTS * WIDTH * GROUP + row
    mass, sum_ = added_parts(partial_ptr, sums_ptr, base, count, ROWS, WIDE, WIDTH, GROUP, SIZE, SIZE_PAD, PARTS)
    allow_next(PDL)
    out_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    out_ptrs = out_ptr + out_row[:, None] * SIZE + column[None, :]
    tl.store(out_ptrs, mean(mass[:, None], sum_, out_ptrs), mask=known[:, None] & (column < SIZE)[None, :])


@triton.jit
def _share(
    memory, parts, row_tile, program,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, SPLITS: tl.constexpr,
    PROGRAMS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Take a program's share of the splits that all rows of a tile see alike; these have two sizes at most."""
    _, positions_ptr, _, _, _, _, _, _, _, _, room = memory
    row = row_tile * TILE + tl.arange(0, TILE)
    known = row < WIDTH * GROUP
    position = tl.load(positions_ptr + tl.minimum(row // GROUP, WIDTH - 1)).to(tl.int32)
    size = size_of_split(tl.minimum(position, room - 1), TOKENS)
    q = _queries(memory, row, known, WIDTH, GROUP, KV_HEADS, SIZE, SIZE_PAD)
    least, most = tl.min(size, 0), tl.max(size, 0)
    for one in tl.range(least, most + 1, tl.maximum(most - least, 1), num_stages=1):
        _share_of_size(
            memory, parts, q, row, known & (size == one), program, one, BLOCK_SIZE, TOKENS, WIDE, WIDTH, GROUP,
            KV_HEADS, SIZE, SPLITS, PROGRAMS, PARTS,
        )  # fmt: skip


@triton.jit
def _share_of_size(
    memory, parts, q, row, stores, program, size,
    BLOCK_SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr, PROGRAMS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Take splits below that of the length; the first program adds its own to one part, others leave each apart."""
    _, _, _, _, row_table_ptr, _, scale, _, _, length, _ = memory
    count = length // TOKENS // size
    begin, behind = tl.cdiv(program * count, PROGRAMS), tl.cdiv((program + 1) * count, PROGRAMS)
    best, mass, sum_ = nothing(q.shape[0], q.shape[1], WIDE)
    whole_best, whole_mass, whole_sum = best, tl.max(mass, 1), sum_
    edge = (begin + 1) * size
    for tile in range(begin * size, behind * size):
        read = (tile * TOKENS + tl.arange(0, TOKENS)).to(tl.uint32)
        block = tl.load(row_table_ptr + read // BLOCK_SIZE)
        scores, v = _scored(memory, q, block, read, None, BLOCK_SIZE, KV_HEADS, SIZE)
        top = highest(scores, scale)
        if PROGRAMS < SPLITS:
            ends = tile == edge
            if ends:
                if program == 0:
                    whole_best, whole_mass, whole_sum = fold(
                        whole_best, whole_mass, whole_sum, best, tl.max(mass, 1), sum_
                    )
                else:
                    slot = _slot_of(tile // size - 1, length, size, TOKENS, PROGRAMS)
                    _leave(parts, slot, row, stores, best, tl.max(mass, 1), sum_, WIDTH, GROUP, SIZE, PARTS)
                # What the sums hold fades to zero; `top` changes nothing, but a split ends behind its scores.
                best, edge = tl.maximum(tl.minimum(top, NOTHING), NOTHING), edge + size
        best, mass, sum_ = take(scores, top, v, scale, best, mass, sum_)
    if behind > begin:
        last_mass = tl.max(mass, 1)
        if program == 0:
            # Where its splits are one, nothing is added.
            best, last_mass, sum_ = fold(whole_best, whole_mass, whole_sum, best, last_mass, sum_)
        slot = _slot_of(behind - 1, length, size, TOKENS, PROGRAMS)
        _leave(parts, slot, row, stores, best, last_mass, sum_, WIDTH, GROUP, SIZE, PARTS)


@triton.jit
def _paths(
    memory, parts, lineage_ptr, program,
    BLOCK_SIZE: tl.constexpr, NODES: tl.constexpr, STEPS: tl.constexpr, NODE_TILE: tl.constexpr, TOKENS: tl.constexpr,
    WIDE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr, PROGRAMS: tl.constexpr, PARTS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Take the split of the length and the one behind it for some nodes, as far as each sees; ALONE all before, too.

    Their rows are one tile. Where their splits are of two sizes, both are taken in turn.
    """
    _, positions_ptr, _, _, _, _, _, sequence, _, _, room = memory
    NODE_TILES: tl.constexpr = (GROUP + NODE_TILE - 1) // NODE_TILE
    first = program // NODE_TILES * NODES
    member = program % NODE_TILES * NODE_TILE + tl.arange(0, NODE_TILE)
    row, known = first * GROUP + member, (member < NODES * GROUP) & (first * GROUP + member < WIDTH * GROUP)
    position = tl.load(positions_ptr + tl.minimum(row // GROUP, WIDTH - 1)).to(tl.int32)
    last = tl.minimum(position, room - 1)
    size = size_of_split(last, TOKENS)
    q = _queries(memory, row, known, WIDTH, GROUP, KV_HEADS, SIZE, SIZE_PAD)
    least, most = tl.min(size, 0), tl.max(size, 0)
    lineage_ptr += sequence * WIDTH * WIDTH
    for one in tl.range(least, most + 1, tl.maximum(most - least, 1), num_stages=1):
        _paths_of_size(
            memory, parts, lineage_ptr, q, row, known & (size == one), last, first, one, BLOCK_SIZE, NODES, STEPS,
            TOKENS, WIDE, WIDTH, GROUP, KV_HEADS, SIZE, PROGRAMS, PARTS, ALONE,
        )  # fmt: skip


@triton.jit
def _paths_of_size(
    memory, parts, lineage_ptr, q, row, stores, last, first, size,
    BLOCK_SIZE: tl.constexpr, NODES: tl.constexpr, STEPS: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, PROGRAMS: tl.constexpr,
    PARTS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Take tiles below the length for all rows at once, then others, whose last steps are each node's own.

    A matrix instruction adds sixteen positions at once. Where some of them are nodes', it comes once for each node. Of
    one node alone all that is left is taken so.
    """
    _, _, _, _, row_table_ptr, _, scale, sequence, head, length, _ = memory
    whole = length // TOKENS
    split = whole // size
    best, mass, sum_ = nothing(q.shape[0], q.shape[1], WIDE)
    all_best, all_mass, all_sum = best, tl.max(mass, 1), sum_
    if ALONE:
        all_best, all_mass, all_sum = _before(memory, q, split * size, size, BLOCK_SIZE, TOKENS, WIDE, KV_HEADS, SIZE)
    for tile in range(split * size, whole):
        read = (tile * TOKENS + tl.arange(0, TOKENS)).to(tl.uint32)
        block = tl.load(row_table_ptr + read // BLOCK_SIZE)
        scores, v = _scored(memory, q, block, read, None, BLOCK_SIZE, KV_HEADS, SIZE)
        best, mass, sum_ = take(scores, highest(scores, scale), v, scale, best, mass, sum_)
    furthest = tl.max(tl.where(stores, last, 0), 0)
    alike = whole * TOKENS if NODES == 1 else length // _STEP * _STEP
    for tile in tl.range(whole, furthest // TOKENS + 1, num_stages=1):
        ends = tile == (split + 1) * size
        if ends:
            if ALONE:
                all_best, all_mass, all_sum = fold(all_best, all_mass, all_sum, best, tl.max(mass, 1), sum_)
            else:
                slot = _slot_of(split, length, size, TOKENS, PROGRAMS)
                _leave(parts, slot, row, stores, best, tl.max(mass, 1), sum_, WIDTH, GROUP, SIZE, PARTS)
            best = tl.full(best.shape, NOTHING, dtype=WIDE)
        own, own_v = _scored_paths(
            memory, q, tl.maximum(alike, tile * TOKENS), (tile + 1) * TOKENS, lineage_ptr, row, first, BLOCK_SIZE,
            NODES, STEPS, WIDTH, GROUP, KV_HEADS, SIZE,
        )  # fmt: skip
        top = highest(own, scale)
        # Of a row that sees no further nothing changes.
        if NODES > 1:
            position = tile * TOKENS + tl.arange(0, TOKENS)
            reads = position < alike
            block = tl.load(row_table_ptr + position // BLOCK_SIZE, mask=reads, other=0)
            scores, v = _scored(memory, q, block, position.to(tl.uint32), reads, BLOCK_SIZE, KV_HEADS, SIZE)
            scores = tl.where(reads[None, :], scores, float("-inf"))
            top = tl.maximum(top, highest(scores, scale))
            best, mass, sum_ = take(scores, top, v, scale, best, mass, sum_)
        best, mass, sum_ = take(own, top, own_v, scale, best, mass, sum_)
    last_split = last // TOKENS // size
    goes_on = last_split > split
    crossed = furthest // TOKENS // size > split
    told = goes_on | (crossed == 0)
    if ALONE:
        # A row that sees no further than the end of a split has nothing behind it.
        next_best = tl.where(told, best, NOTHING)
        next_mass, next_sum = tl.where(told, tl.max(mass, 1), 0.0), tl.where(told[:, None], sum_, 0.0)
        _, all_mass, all_sum = fold(all_best, all_mass, all_sum, next_best, next_mass, next_sum)
        _finish(parts, sequence, head, row, stores, all_mass, all_sum, WIDTH, GROUP, KV_HEADS, SIZE)
    else:
        slot = tl.where(goes_on, _slot_of(split + 1, length, size, TOKENS, PROGRAMS), 0)
        slot = tl.where(goes_on, slot, _slot_of(split, length, size, TOKENS, PROGRAMS))
        _leave(parts, slot, row, stores & told, best, tl.max(mass, 1), sum_, WIDTH, GROUP, SIZE, PARTS)


@triton.jit
def _before(
    memory, q, end, size,
    BLOCK_SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return the tiles below one as one part: splits of so many tiles, which all rows see alike, added in order."""
    _, _, _, _, row_table_ptr, _, scale, _, _, _, _ = memory
    best, mass, sum_ = nothing(q.shape[0], q.shape[1], WIDE)
    all_best, all_mass, all_sum = best, tl.max(mass, 1), sum_
    edge = size
    for tile in range(end):
        read = (tile * TOKENS + tl.arange(0, TOKENS)).to(tl.uint32)
        block = tl.load(row_table_ptr + read // BLOCK_SIZE)
        scores, v = _scored(memory, q, block, read, None, BLOCK_SIZE, KV_HEADS, SIZE)
        top = highest(scores, scale)
        ends = tile == edge
        if ends:
            all_best, all_mass, all_sum = fold(all_best, all_mass, all_sum, best, tl.max(mass, 1), sum_)
            # What the sums hold fades to zero, as where a program leaves a part.
            best, edge = tl.maximum(tl.minimum(top, NOTHING), NOTHING), edge + size
        best, mass, sum_ = take(scores, top, v, scale, best, mass, sum_)
    return fold(all_best, all_mass, all_sum, best, tl.max(mass, 1), sum_)


@triton.jit
def _finish(
    parts, sequence, head, row, stores, mass, sum_,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Store the results of rows."""
    out_ptr, _, _ = parts
    column = tl.arange(0, sum_.shape[1])
    out_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    out_ptrs = out_ptr + out_row[:, None] * SIZE + column[None, :]
    tl.store(out_ptrs, mean(mass[:, None], sum_, out_ptrs), mask=stores[:, None] & (column < SIZE)[None, :])


@triton.jit
def _scored_paths(
    memory, q, begin, end, lineage_ptr, row, first,
    BLOCK_SIZE: tl.constexpr, NODES: tl.constexpr, STEPS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return scores and values of the last steps of a tile along the paths of some nodes, beside one another.

    Each row sees its own node's path, up to its position. What others have there weighs nothing, and adds nothing.
    """
    _, positions_ptr, _, _, row_table_ptr, _, _, _, _, length, room = memory
    column = tl.arange(0, STEPS * NODES * _STEP)
    node = first + column // _STEP % NODES
    exists = node < WIDTH
    last = tl.load(positions_ptr + node, mask=exists, other=-1).to(tl.int32)
    position = begin + column // (NODES * _STEP) * _STEP + column % _STEP
    sees = (position <= tl.minimum(last, room - 1)) & (position < end)
    depth = position - length
    at = lineage_ptr + tl.minimum(node, WIDTH - 1) * WIDTH + tl.maximum(depth, 0)
    ancestor = tl.load(at, mask=(depth > 0) & (depth < WIDTH), other=0)  # what stands behind a node is not read
    place = tl.where(depth > 0, length + ancestor, position)
    # A row that has no place in its sequence's blocks reads nothing.
    reads = sees & (place < room)
    read = tl.where(reads, place, 0).to(tl.uint32)
    block = tl.load(row_table_ptr + read // BLOCK_SIZE)
    scores, v = _scored(memory, q, block, read, reads & (block != 0), BLOCK_SIZE, KV_HEADS, SIZE)
    return tl.where(sees[None, :] & (node[None, :] == (row // GROUP)[:, None]), scores, float("-inf")), v


@triton.jit
def _queries(
    memory, row, known,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr,
):  # fmt: skip
    """Return the queries of rows, zero where there is none."""
    q_ptr, _, _, _, _, _, _, sequence, head, _, _ = memory
    column = tl.arange(0, SIZE_PAD)
    q_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    fits = known[:, None] & (column < SIZE)[None, :]
    return tl.load(q_ptr + q_row[:, None] * SIZE + column[None, :], mask=fits, other=0.0)


@triton.jit
def _scored(
    memory, q, block, read, reads, BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """Return the products of queries and a tile of keys, and the tile's values; what is not read is zero."""
    _, _, keys_ptr, exponents_ptr, _, values_at, _, _, _, _, _ = memory
    column = tl.arange(0, q.shape[1])[None, :]
    row = block * (BLOCK_SIZE * KV_HEADS) + (read % BLOCK_SIZE).to(tl.int32) * KV_HEADS
    place = row.to(tl.int64) * SIZE
    known = (column < SIZE) if reads is None else (column < SIZE) & reads[:, None]
    values_ptr = keys_ptr + values_at * SIZE
    k = tl.load(keys_ptr + place[:, None] + column, mask=known, other=0.0)
    v = tl.load(values_ptr + place[:, None] + column, mask=known, other=0.0)
    k = widened(k, exponents_ptr, place, reads, q.dtype, SIZE)
    v = widened(v, exponents_ptr + values_at, place, reads, q.dtype, SIZE)
    return tl.dot(q, tl.trans(k), input_precision="ieee"), v


@triton.jit
def _slot_of(split, length, size, TOKENS: tl.constexpr, PROGRAMS: tl.constexpr):
    """Return which part a split is in, or is; those of the first program's share are one."""
    ahead = tl.cdiv(length // TOKENS // size, PROGRAMS)
    return tl.maximum(split - ahead, -1) + tl.minimum(ahead, 1)


@triton.jit
def _leave(
    parts, slot, row, stores, best, mass, sum_,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Leave the part of a split in memory."""
    partial_ptr, sums_ptr, pair = parts
    column = tl.arange(0, sum_.shape[1])
    part = (pair.to(tl.int64) * PARTS + slot) * WIDTH * GROUP + row
    takes = stores[:, None] & (column < SIZE)[None, :]
    tl.store(partial_ptr + part[:, None] * SIZE + column[None, :], sum_, mask=takes)
    tl.store(sums_ptr + part * 2, best, mask=stores)
    tl.store(sums_ptr + part * 2 + 1, mass, mask=stores)
