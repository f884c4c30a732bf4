"""Scores of what a sequence has from its length on: keys along the paths of nodes, or by the places of their rows."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.kv_codes.kernel import widened
from services.common.kernels.span_attention.softmax import highest

STEP = 16
"""Positions whose values a matrix instruction adds at once."""
_STEP = tl.constexpr(STEP)


@triton.jit
def scored_paths(
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
    scores, v = scored(memory, q, block, read, reads & (block != 0), BLOCK_SIZE, KV_HEADS, SIZE)
    return tl.where(sees[None, :] & (node[None, :] == (row // GROUP)[:, None]), scores, float("-inf")), v


@triton.jit
def highest_of_nodes(
    memory, q, begin, end, lineage_ptr, row, last, scale,
    BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return what `highest` says of the nodes of each row's path whose positions are in a tile."""
    _, positions_ptr, _, _, row_table_ptr, _, _, _, _, length, room = memory
    node = tl.arange(0, triton.next_power_of_2(max(WIDTH, _STEP)))
    exists = node < WIDTH
    position = tl.load(positions_ptr + node, mask=exists, other=-1).to(tl.int32)
    reads = exists & (length + node < room)
    read = tl.where(reads, length + node, 0).to(tl.uint32)
    block = tl.load(row_table_ptr + read // BLOCK_SIZE)
    scores, _ = scored(memory, q, block, read, reads & (block != 0), BLOCK_SIZE, KV_HEADS, SIZE)
    depth = tl.minimum(tl.maximum(position - length, 0), WIDTH - 1)
    at = tl.minimum(row // GROUP, WIDTH - 1)[:, None] * WIDTH + depth[None, :]
    follows = tl.where((depth > 0)[None, :], tl.load(lineage_ptr + at), 0) == node[None, :]
    inside = exists & (position >= begin) & (position < end)
    sees = follows & inside[None, :] & (position[None, :] <= last[:, None])
    return highest(tl.where(sees, scores, float("-inf")), scale)


@triton.jit
def scored(
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
