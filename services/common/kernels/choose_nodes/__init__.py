"""Which candidates of a block become the nodes of a tree: those whose paths have the largest products of probabilities.

Suffixes: B sequences, K positions of the block, P candidates of the position before, C candidates of a position.
"""

from torch import Tensor

from services.common.kernels.choose_nodes import reference
from services.common.kernels.choose_nodes.reference import ABSENT
from services.common.kernels.dispatch import on_kernel

__all__ = ["ABSENT", "choose_nodes"]


def choose_nodes(ids_BKC: Tensor, scores_BKPC: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return tokens and parents [B, count], int64, of the best nodes of each sequence; draft j is row j + 1.

    Scores are log-probabilities. P is 1, or C where they depend on the candidate before; at the first position all P
    are equal. Parents stand before their children, equal scores in the order of depth, then rank, then parent. The
    nodes of a smaller tree are the first ones of a larger. Where candidates do not suffice, drafts are absent.
    """
    if on_kernel(ids_BKC):
        from services.common.kernels.choose_nodes import kernel

        return kernel.choose_nodes(ids_BKC, scores_BKPC, count)
    return reference.choose_nodes(ids_BKC, scores_BKPC, count)
