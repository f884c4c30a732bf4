"""Which candidates of a block become the nodes of a tree: those whose paths have the largest products of probabilities.

Suffixes: B sequences, K positions of the block, P candidates of the position before, C candidates of a position.
"""

from heapq import heappop, heappush
from math import inf

import torch
from torch import Tensor

from services.common.kernels.dispatch import Operator

ABSENT = -1


@Operator
def choose_nodes(ids_BKC: Tensor, scores_BKPC: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return tokens and parents [B, count], int64, of the best nodes of each sequence; draft j is row j + 1.

    Scores are log-probabilities. P is 1, or C where they depend on the candidate before; at the first position all P
    are equal. Parents stand before their children, equal scores in the order of depth, then rank, then parent. The
    nodes of a smaller tree are the first ones of a larger. Where candidates do not suffice, drafts are absent.
    """
    values_BKPC, order_BKPC = scores_BKPC.sort(dim=-1, descending=True, stable=True)
    trees = [
        _grow(ids, values, order, count)
        for ids, values, order in zip(ids_BKC.tolist(), values_BKPC.tolist(), order_BKPC.tolist(), strict=True)
    ]
    tokens_BK, parents_BK = torch.tensor(trees).unbind(1)
    return tokens_BK, parents_BK


def _grow(
    ids_KC: list[list[int]], values_KPC: list[list[list[float]]], order_KPC: list[list[list[int]]], count: int
) -> tuple[list[int], list[int]]:
    """Take nodes out of a heap, best first; each brings its next sibling and its first child.

    An entry is (score, depth, rank, parent's row, candidate before, parent's score); scores are negative.
    """
    tokens, parents = [ABSENT] * count, [0] * count
    heap = [(-values_KPC[0][0][0], 0, 0, 0, 0, 0.0)]
    for draft in range(count):
        if not heap or heap[0][0] == inf:
            break
        score, depth, rank, parent, before, above = heappop(heap)
        candidate = order_KPC[depth][before][rank]
        tokens[draft], parents[draft] = ids_KC[depth][candidate], parent
        siblings = values_KPC[depth][before]
        if rank + 1 < len(siblings):
            heappush(heap, (above - siblings[rank + 1], depth, rank + 1, parent, before, above))
        if depth + 1 < len(ids_KC):
            behind = candidate if len(values_KPC[depth + 1]) > 1 else 0
            first = score - values_KPC[depth + 1][behind][0]
            heappush(heap, (first, depth + 1, 0, draft + 1, behind, score))
    return tokens, parents
