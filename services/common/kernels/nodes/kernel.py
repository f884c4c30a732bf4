"""Trees of a round on the GPU: one launch reads them, and one for each cache moves what a path has left.

Bytes for B sequences of W nodes: B (12 W + 4 W W) to read them; to move a path of n nodes at most 2 n times what a
position has in a cache, and nothing where a path is a chain.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.nodes import Nodes
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_CHUNK = 1024
_ONE_WARP = 16
"""Nodes at most that a warp reads alone."""


def read_nodes(
    parents_SK: Tensor, rows_B: Tensor, table_SN: Tensor, length_S: Tensor, block_size: int, drafts_BK: Tensor,
    nodes: Nodes,
) -> None:  # fmt: skip
    """Copy and check the trees of a round; see the operator."""
    assert drafts_BK.is_contiguous(), "the copy must be contiguous"
    count, drafts = drafts_BK.shape
    padded = triton.next_power_of_2(drafts + 1)
    read_nodes_kernel[(count,)](
        parents_SK, rows_B, table_SN, length_S, drafts_BK, nodes.parents_BK, nodes.depths_BW, nodes.ancestors_BW,
        nodes.lineage_BWW, parents_SK.stride(0), table_SN.stride(0), table_SN.shape[1], BLOCK_SIZE=block_size,
        WIDTH=drafts + 1, WIDTH_PAD=padded, DOUBLINGS=padded.bit_length() - 1, PDL=PDL,
        num_warps=1 if padded <= _ONE_WARP else 4, **LAUNCH,
    )  # fmt: skip


@triton.jit
def read_nodes_kernel(
    mailbox_parents_ptr, rows_ptr, tables_ptr, length_ptr, drafts_ptr, parents_ptr, depths_ptr, ancestors_ptr,
    lineage_ptr, stride_mailbox, stride_table, columns,
    BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, DOUBLINGS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Read one sequence's tree: parents, then the ancestors and depth of each row by doubling, and its lineage."""
    line = tl.program_id(0)
    allow_next(PDL)
    await_previous(PDL)
    slot = tl.load(rows_ptr + line).to(tl.int64)
    row = tl.arange(0, WIDTH_PAD)
    drafts = (row > 0) & (row < WIDTH)
    before = tl.maximum(row - 1, 0)
    # Volatile: the drafter is another process and may write while this kernel runs.
    given = tl.load(mailbox_parents_ptr + slot * stride_mailbox + before, mask=drafts, other=0, volatile=True)
    broken = tl.sum((drafts & ((given < 0) | (given >= row))).to(tl.int32), 0) > 0
    parent = tl.where(broken, before, tl.where(drafts, given, before).to(tl.int32))
    place = line * (WIDTH - 1) + before
    tl.store(parents_ptr + place, parent.to(tl.int64), mask=drafts)
    column = (tl.load(length_ptr + slot) + row) // BLOCK_SIZE
    block = tl.load(tables_ptr + slot * stride_table + column, mask=drafts & (column < columns), other=0)
    draft = tl.load(drafts_ptr + place, mask=drafts, other=-1)
    tl.store(drafts_ptr + place, tl.where(broken | (block == 0), -1, draft), mask=drafts)
    # Each row looks as far up as it has looked, again and again.
    bits, depth, up = tl.full((WIDTH_PAD,), 1, tl.int64) << row.to(tl.int64), (row > 0).to(tl.int32), parent
    for _ in tl.static_range(DOUBLINGS):
        bits = bits | tl.gather(bits, up, 0)
        depth += tl.gather(depth, up, 0)
        up = tl.gather(up, up, 0)
    held = (bits[:, None] >> row[None, :].to(tl.int64)) & 1 != 0
    # Of the same row as an ancestor of others.
    depth_across = tl.sum(tl.where(row[:, None] == row[None, :], depth[:, None], 0), 0)
    at, exists = line * WIDTH + row, row < WIDTH
    tl.store(depths_ptr + at, depth.to(tl.int64), mask=exists)
    tl.store(ancestors_ptr + at, bits, mask=exists)
    places = at[:, None] * WIDTH + depth_across[None, :]
    rows = tl.broadcast_to(row[None, :], (WIDTH_PAD, WIDTH_PAD))
    tl.store(lineage_ptr + places, rows, mask=held & exists[:, None] & exists[None, :])


def keep_path(path_BW: Tensor, count_B: Tensor, slots_T: Tensor, caches: Sequence[Tensor]) -> None:
    """Move what the accepted nodes have left; see the operator."""
    batch, width = path_BW.shape
    for cache in caches:
        assert cache.is_contiguous(), "caches lie in a row"
        halves, numbers = cache.shape[0] * cache.shape[1], cache[0, 0, 0, 0].numel()
        keep_path_kernel[(batch, halves, triton.cdiv(numbers, _CHUNK))](
            path_BW, count_B, slots_T, cache, cache.shape[2] * cache.shape[3], numbers, WIDTH=width,
            CHUNK=min(_CHUNK, triton.next_power_of_2(numbers)), PDL=PDL, **LAUNCH,
        )  # fmt: skip


@triton.jit
def keep_path_kernel(
    path_ptr, count_ptr, slots_ptr, cache_ptr, places, numbers,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Move one sequence's rows in the keys or values of one layer, in order of depth: none is overwritten unread."""
    line, column = tl.program_id(0), tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    allow_next(PDL)
    await_previous(PDL)
    count = tl.load(count_ptr + line)
    half_ptr = cache_ptr + tl.program_id(1).to(tl.int64) * places * numbers + column
    for depth in range(1, count):
        row = tl.load(path_ptr + line * WIDTH + depth)
        if row != depth:
            source, target = tl.load(slots_ptr + line * WIDTH + row), tl.load(slots_ptr + line * WIDTH + depth)
            moved = tl.load(half_ptr + source * numbers, mask=column < numbers)
            tl.store(half_ptr + target * numbers, moved, mask=column < numbers)
