"""Rows of a round as nodes: (sequence, parent row, token, depth). In a chain each follows the row before.

A node is computed at the position of its depth, sees the context, its ancestors and itself, and is stored by its row
until the round has chosen its tokens. Then what the accepted path has left moves to its positions.

Suffixes: S slots + 1, N blocks of a slot, B rows of the bucket, W nodes of a sequence, its anchor first, K one less.
"""

from collections.abc import Sequence

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.nodes import reference
from services.common.kernels.nodes.reference import MOST_NODES, Nodes, Tree, first_path, trunk_of, walk

__all__ = ["MOST_NODES", "Nodes", "Tree", "first_path", "keep_path", "read_nodes", "trunk_of", "walk"]


def read_nodes(
    parents_SK: Tensor, rows_B: Tensor, table_SN: Tensor, length_S: Tensor, block_size: int, drafts_BK: Tensor,
    nodes: Nodes,
) -> None:  # fmt: skip
    """Copy every row's parents from the shared mailbox into `nodes`, and check the copy alone (invariant I6).

    A tree in which a parent does not stand before its node becomes a chain without drafts. A node without a place in
    the blocks of its sequence becomes absent in `drafts_BK`: what it leaves could not be kept.
    """
    if on_kernel(parents_SK):
        from services.common.kernels.nodes import kernel

        kernel.read_nodes(parents_SK, rows_B, table_SN, length_S, block_size, drafts_BK, nodes)
    else:
        reference.read_nodes(parents_SK, rows_B, table_SN, length_S, block_size, drafts_BK, nodes)


def keep_path(path_BW: Tensor, count_B: Tensor, slots_T: Tensor, caches: Sequence[Tensor]) -> None:
    """Move what the accepted nodes have left from the places of their rows to those of their positions.

    Args:
        path_BW: the row of the accepted node of each depth.
        count_B: how many of these are kept, the anchor among them.
        slots_T: the flat place of each row, `block * S + offset`; the row of a depth's number has that of the depth.
        caches: paged keys and values [L, 2, N, S, H, D] of all layers, or exponents of such codes [L, 2, N, S, H].
    """
    if on_kernel(path_BW):
        from services.common.kernels.nodes import kernel

        kernel.keep_path(path_BW, count_B, slots_T, caches)
    else:
        reference.keep_path(path_BW, count_B, slots_T, caches)
