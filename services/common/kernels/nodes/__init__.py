"""Rows of a round as nodes: (sequence, parent row, token, depth). In a chain each follows the row before.

A node is computed at the position of its depth, sees the context, its ancestors and itself, and is stored by its row
until the round has chosen its tokens. Then what the accepted path has left moves to its positions.

Suffixes: S slots + 1, N blocks of a slot, B rows of the bucket, W nodes of a sequence, its anchor first, K one less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.common.kernels.dispatch import Operator, on_kernel
from services.common.kernels.span_attention.host_span import PAD_BLOCK

MOST_NODES = 63
"""Nodes of a sequence, its anchor among them: the ancestors of one are bits of a word with a sign."""
ABSENT = -1


class Tree(NamedTuple):
    """What the rows of a round descend from, as arrays: by draft its parent row, by row its depth.

    `lines_B1` are the numbers of the sequences.
    """

    parents_BK: NDArray[Any]
    depths_BW: NDArray[Any]
    lines_B1: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Nodes:
    """The trees of a round, in static buffers. Row 0 of each is its anchor, row j + 1 the node of draft j.

    `parents_BK` are rows before the node's own, `depths_BW` one more than the parent's. Bit i of row j in
    `ancestors_BW` says that row j is row i or descends from it. On a GPU `lineage_BWW`, int32, has the row of each
    ancestor of a row by depth, and itself at its own; what stands behind that says nothing. There is no `tree` then.
    """

    parents_BK: Tensor
    depths_BW: Tensor
    ancestors_BW: Tensor
    lineage_BWW: Tensor | None
    tree: Tree | None

    @classmethod
    def allocate(
        cls, bucket: int, width: int, device: torch.device | str = "cpu", parents_BK: Tensor | None = None
    ) -> "Nodes":
        """Return chains, whose parents lie in `parents_BK` where it is given.

        Raises:
            ValueError: more nodes than a word has bits.
        """
        if width > MOST_NODES:
            raise ValueError(f"{width} nodes, at most {MOST_NODES} fit")
        rows_W = torch.arange(width, device=device)
        chain = rows_W[:-1], rows_W, (2 << rows_W) - 1
        parents, depths_BW, ancestors_BW = (each.expand(bucket, -1).clone() for each in chain)
        parents_BK = parents if parents_BK is None else parents_BK.copy_(parents)
        if on_kernel(rows_W):
            lineage_BWW = rows_W.to(torch.int32).expand(bucket, width, -1).clone()
            return cls(parents_BK, depths_BW, ancestors_BW, lineage_BWW, None)
        tree = Tree(parents_BK.numpy(), depths_BW.numpy(), np.arange(bucket)[:, None])
        return cls(parents_BK, depths_BW, ancestors_BW, None, tree)

    @property
    def host(self) -> Tree:
        """The same as arrays, on a CPU."""
        assert self.tree is not None, "trees of a GPU have no arrays"
        return self.tree


@Operator
def read_nodes(
    parents_SK: Tensor, rows_B: Tensor, table_SN: Tensor, length_S: Tensor, block_size: int, drafts_BK: Tensor,
    nodes: Nodes,
) -> None:  # fmt: skip
    """Copy every row's parents from the shared mailbox into `nodes`, and check the copy alone (invariant I6).

    A tree in which a parent does not stand before its node becomes a chain without drafts. A node without a place in
    the blocks of its sequence becomes absent in `drafts_BK`: what it leaves could not be kept.
    """
    tree = nodes.host
    rows, drafts, parents = rows_B.numpy(), drafts_BK.numpy(), tree.parents_BK
    count = drafts.shape[1]
    parents[:] = parents_SK.numpy()[rows, :count]
    broken = ((parents < 0) | (parents > np.arange(count))).any(1)
    if broken.any():
        parents[broken], drafts[broken] = np.arange(count), ABSENT
    table_BN, lengths_B = table_SN.numpy()[rows], length_S.numpy()[rows]
    blocks_BK = (lengths_B[:, None] + np.arange(1, count + 1)) // block_size
    held_BK = blocks_BK < table_BN.shape[1]
    held_BK &= table_BN[tree.lines_B1, np.where(held_BK, blocks_BK, 0)] != PAD_BLOCK
    drafts[~held_BK] = ABSENT
    shapes = [_shape(of_sequence) for of_sequence in parents.tolist()]
    tree.depths_BW[:] = [depths for depths, _ in shapes]
    nodes.ancestors_BW.numpy()[:] = [ancestors for _, ancestors in shapes]


def _shape(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return depths and ancestors of a tree's rows; at a few rows lists are quicker than arrays."""
    depths, ancestors = [0], [1]
    for row, parent in enumerate(parents, start=1):
        depths.append(depths[parent] + 1)
        ancestors.append(ancestors[parent] | 1 << row)
    return depths, ancestors


def walk(right_BK: NDArray[Any], tree: Tree, path_BW: NDArray[Any]) -> NDArray[Any]:
    """Write the rows on the accepted path by depth, and behind it all in order; return how many drafts it has [B].

    From the anchor it goes on to the first child that is right, while there is one. Children stand behind their
    parents, so one look at each row is enough; at a few rows lists are quicker than arrays.
    """
    path_BW[:] = np.arange(path_BW.shape[1])
    accepted = []
    for line, (right, parents) in enumerate(zip(right_BK.tolist(), tree.parents_BK.tolist(), strict=True)):
        path = [0]
        for row, (good, parent) in enumerate(zip(right, parents, strict=True), start=1):
            if good and parent == path[-1]:
                path.append(row)
        path_BW[line, : len(path)] = path
        accepted.append(len(path) - 1)
    return np.array(accepted)


def first_path(parents: Sequence[int], drafts: Sequence[int]) -> list[int]:
    """Return the rows of a tree's path that goes to the first child each time, and ends before an absent draft."""
    path = [0]
    for row, (parent, draft) in enumerate(zip(parents, drafts, strict=True), start=1):
        if parent == path[-1] and draft != ABSENT:
            path.append(row)
    return path[1:]


@Operator
def keep_path(path_BW: Tensor, count_B: Tensor, slots_T: Tensor, caches: Sequence[Tensor]) -> None:
    """Move what the accepted nodes have left from the places of their rows to those of their positions.

    Args:
        path_BW: the row of the accepted node of each depth.
        count_B: how many of these are kept, the anchor among them.
        slots_T: the flat place of each row, `block * S + offset`; the row of a depth's number has that of the depth.
        caches: paged keys and values [L, 2, N, S, H, D] of all layers, or exponents of such codes [L, 2, N, S, H].
    """
    path, slots = path_BW.numpy(), slots_T.view(path_BW.shape).numpy()
    depths_W = np.arange(path.shape[1])
    row_E, depth_E = np.nonzero((depths_W < count_B.numpy()[:, None]) & (path != depths_W))
    if not len(row_E):
        return
    from_E, to_E = (torch.from_numpy(slots[row_E, place_E]) for place_E in (path[row_E, depth_E], depth_E))
    for cache in caches:
        flat_L2PHD = cache.flatten(2, 3)
        flat_L2PHD.index_copy_(2, to_E, flat_L2PHD.index_select(2, from_E))
