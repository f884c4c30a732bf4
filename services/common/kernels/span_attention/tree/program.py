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

from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.span_attention.merge import added_parts
from services.common.kernels.span_attention.softmax import NOTHING, fold, highest, mean, nothing, take
from services.common.kernels.span_attention.splits import size_of_split
from services.common.kernels.span_attention.tree.ends import STEP, highest_of_nodes, scored, scored_paths

_STEP = tl.constexpr(STEP)


@triton.jit
def tree_kernel(
    q_ptr, kv_ptr, exponents_ptr, table_ptr, lengths_ptr, positions_ptr, lineage_ptr, partial_ptr, sums_ptr, out_ptr,
    places, stride_table, columns, scale,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, NODES: tl.constexpr, BESIDE: tl.constexpr, STEPS: tl.constexpr,
    NODE_TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, SPLITS: tl.constexpr, PROGRAMS: tl.constexpr,
    PARTS: tl.constexpr, ALONE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Leave the parts of splits; grid (B * Hkv, W / NODES * tiles of a node's heads + PROGRAMS * row tiles).

    What takes longest begins first: of a short context nothing is left to the others. Where nodes are ALONE there are
    no others, and results are left.
    """
    pair, program = tl.program_id(0), tl.program_id(1)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    room = columns * BLOCK_SIZE
    length = tl.minimum(tl.load(lengths_ptr + sequence).to(tl.int32), room)
    memory = (
        q_ptr, positions_ptr + sequence * WIDTH, kv_ptr + head * SIZE, exponents_ptr + head,
        table_ptr + sequence * stride_table, places * KV_HEADS, scale, sequence, head, length, room,
    )  # fmt: skip
    parts = (out_ptr, sums_ptr, pair) if ALONE else (partial_ptr, sums_ptr, pair)
    OWN: tl.constexpr = ((WIDTH + NODES - 1) // NODES) * ((GROUP + NODE_TILE - 1) // NODE_TILE)
    if not ALONE and program >= OWN:
        share = (program - OWN) % PROGRAMS
        # Most programs of a short context have no split: no row's are smaller than those of the anchor.
        if share < length // TOKENS // size_of_split(tl.minimum(length, room - 1), TOKENS):
            await_previous(PDL)
            _share(
                memory, parts, (program - OWN) // PROGRAMS, share, BLOCK_SIZE, TILE, TOKENS, WIDE, WIDTH, GROUP,
                KV_HEADS, SIZE, SIZE_PAD, SPLITS, PROGRAMS, PARTS,
            )  # fmt: skip
    else:
        await_previous(PDL)
        _paths(
            memory, parts, lineage_ptr, program, BLOCK_SIZE, NODES, BESIDE, STEPS, NODE_TILE, TOKENS, WIDE, WIDTH,
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
    # Of few splits the first programs have one each: others may run only when these have ended.
    most = tl.maximum(count, PROGRAMS)
    begin = tl.minimum(tl.cdiv(program * most, PROGRAMS), count)
    behind = tl.minimum(tl.cdiv((program + 1) * most, PROGRAMS), count)
    best, mass, sum_ = nothing(q.shape[0], q.shape[1], WIDE)
    whole_best, whole_mass, whole_sum = best, tl.max(mass, 1), sum_
    edge = (begin + 1) * size
    for tile in range(begin * size, behind * size):
        read = (tile * TOKENS + tl.arange(0, TOKENS)).to(tl.uint32)
        block = tl.load(row_table_ptr + read // BLOCK_SIZE)
        scores, v = scored(memory, q, block, read, None, BLOCK_SIZE, KV_HEADS, SIZE)
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
    BLOCK_SIZE: tl.constexpr, NODES: tl.constexpr, BESIDE: tl.constexpr, STEPS: tl.constexpr, NODE_TILE: tl.constexpr,
    TOKENS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, PROGRAMS: tl.constexpr, PARTS: tl.constexpr, ALONE: tl.constexpr,
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
            memory, parts, lineage_ptr, q, row, known & (size == one), last, first, one, BLOCK_SIZE, NODES, BESIDE,
            STEPS, TOKENS, WIDE, WIDTH, GROUP, KV_HEADS, SIZE, PROGRAMS, PARTS, ALONE,
        )  # fmt: skip


@triton.jit
def _paths_of_size(
    memory, parts, lineage_ptr, q, row, stores, last, first, size,
    BLOCK_SIZE: tl.constexpr, NODES: tl.constexpr, BESIDE: tl.constexpr, STEPS: tl.constexpr, TOKENS: tl.constexpr,
    WIDE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    PROGRAMS: tl.constexpr, PARTS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Take tiles below the length for all rows at once, then others, whose last steps are each node's own.

    A matrix instruction adds sixteen positions at once. Where some of them are nodes', it comes once for each node. Of
    one node alone all that is left is taken so. Of more nodes than have room BESIDE one another, some at a time are
    taken, once the highest of all their scores is known: a score does not know where its key stands.
    """
    _, _, _, _, row_table_ptr, _, scale, sequence, head, length, _ = memory
    whole = length // TOKENS
    split = whole // size
    best, mass, sum_ = nothing(q.shape[0], q.shape[1], WIDE)
    all_best, all_mass, all_sum = best, tl.max(mass, 1), sum_
    # ALONE it begins with the first split, and adds up those behind which it comes.
    edge = size if ALONE else (split + 1) * size
    for tile in range(0 if ALONE else split * size, whole):
        read = (tile * TOKENS + tl.arange(0, TOKENS)).to(tl.uint32)
        block = tl.load(row_table_ptr + read // BLOCK_SIZE)
        scores, v = scored(memory, q, block, read, None, BLOCK_SIZE, KV_HEADS, SIZE)
        top = highest(scores, scale)
        if ALONE:
            ends = tile == edge
            if ends:
                all_best, all_mass, all_sum = fold(all_best, all_mass, all_sum, best, tl.max(mass, 1), sum_)
                # What the sums hold fades to zero, as where a program leaves a part.
                best, edge = tl.maximum(tl.minimum(top, NOTHING), NOTHING), edge + size
        best, mass, sum_ = take(scores, top, v, scale, best, mass, sum_)
    furthest = tl.max(tl.where(stores, last, 0), 0)
    alike = whole * TOKENS if NODES == 1 else length // _STEP * _STEP
    for tile in tl.range(whole, furthest // TOKENS + 1, num_stages=1):
        ends = tile == edge
        if ends:
            if ALONE:
                all_best, all_mass, all_sum = fold(all_best, all_mass, all_sum, best, tl.max(mass, 1), sum_)
            else:
                slot = _slot_of(split, length, size, TOKENS, PROGRAMS)
                _leave(parts, slot, row, stores, best, tl.max(mass, 1), sum_, WIDTH, GROUP, SIZE, PARTS)
            best, edge = tl.full(best.shape, NOTHING, dtype=WIDE), edge + size
        best, mass, sum_ = _end_of_paths(
            memory, q, tile, alike, lineage_ptr, row, last, first, best, mass, sum_, BLOCK_SIZE, NODES, BESIDE, STEPS,
            TOKENS, WIDTH, GROUP, KV_HEADS, SIZE,
        )  # fmt: skip
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
def _end_of_paths(
    memory, q, tile, alike, lineage_ptr, row, last, first, best, mass, sum_,
    BLOCK_SIZE: tl.constexpr, NODES: tl.constexpr, BESIDE: tl.constexpr, STEPS: tl.constexpr, TOKENS: tl.constexpr,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Add a tile at or behind the length: what is alike for all rows, then what each node has on its path."""
    _, _, _, _, row_table_ptr, _, scale, _, _, length, _ = memory
    SOME: tl.constexpr = NODES > BESIDE
    begin, behind = tl.maximum(alike, tile * TOKENS), (tile + 1) * TOKENS
    if SOME:
        top = highest_of_nodes(
            memory, q, tile * TOKENS, behind, lineage_ptr, row, last, scale, BLOCK_SIZE, WIDTH, GROUP, KV_HEADS, SIZE
        )  # fmt: skip
    else:
        own, own_v = scored_paths(
            memory, q, begin, behind, lineage_ptr, row, first, BLOCK_SIZE, NODES, STEPS, WIDTH, GROUP, KV_HEADS, SIZE
        )  # fmt: skip
        top = highest(own, scale)
    # Of a row that sees no further nothing changes.
    if NODES > 1:
        position = tile * TOKENS + tl.arange(0, TOKENS)
        reads = position < (length if SOME else alike)
        block = tl.load(row_table_ptr + position // BLOCK_SIZE, mask=reads, other=0)
        scores, v = scored(memory, q, block, position.to(tl.uint32), reads, BLOCK_SIZE, KV_HEADS, SIZE)
        scores = tl.where(reads[None, :], scores, float("-inf"))
        top = tl.maximum(top, highest(scores, scale))
        if SOME:
            scores = tl.where((position < alike)[None, :], scores, float("-inf"))
        best, mass, sum_ = take(scores, top, v, scale, best, mass, sum_)
    if SOME:
        for some in tl.range(first, first + NODES, BESIDE, num_stages=2):
            own, own_v = scored_paths(
                memory, q, begin, behind, lineage_ptr, row, some, BLOCK_SIZE, BESIDE, STEPS, WIDTH, GROUP, KV_HEADS,
                SIZE,
            )  # fmt: skip
            best, mass, sum_ = take(own, top, own_v, scale, best, mass, sum_)
    else:
        best, mass, sum_ = take(own, top, own_v, scale, best, mass, sum_)
    return best, mass, sum_


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
