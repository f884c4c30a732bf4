"""How likely each position's candidates are behind each candidate before, by a score of two tokens and a row.

Suffixes: B sequences, K positions, P candidates of the position before, C of a position, V tokens, R the rank of codes.
"""

import torch
from torch import Tensor

from services.common.kernels.dispatch import Operator


@Operator
def rank_candidates(
    ids_BKC: Tensor,
    scores_BKC: Tensor,
    hidden_BKR: Tensor,
    before_VR: Tensor,
    after_VR: Tensor,
    anchor_B: Tensor,
    scale_B: Tensor | None = None,
    trust_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return candidates in the order of their ids [B, K, C], and their log-probabilities among themselves [B, K, P, C].

    A candidate's score has `sum over r of before[token before] * hidden * after[candidate]` added, times a scale. Both
    together are multiplied by the trust. Before the first position stands the anchor, for all P. On a GPU sums are
    float32, and what is no number has no chance.
    """
    ids_BKC, order_BKC = ids_BKC.sort(-1)
    scores_BKC = scores_BKC.gather(-1, order_BKC)
    first_B1C = anchor_B[:, None, None].expand(-1, 1, ids_BKC.shape[-1])
    before_BKP = torch.cat((first_B1C, ids_BKC[:, :-1]), 1)
    before_BKPR = before_VR.index_select(0, before_BKP.flatten()).view(*before_BKP.shape, -1)
    after_BKCR = after_VR.index_select(0, ids_BKC.flatten()).view(*ids_BKC.shape, -1)
    pair_BKPC = torch.matmul(before_BKPR * hidden_BKR[:, :, None], after_BKCR.transpose(-1, -2))
    if scale_B is not None:
        pair_BKPC = pair_BKPC * scale_B[:, None, None, None]
    scores_BKPC = scores_BKC[:, :, None] + pair_BKPC
    if trust_B is not None:
        scores_BKPC = scores_BKPC * trust_B[:, None, None, None]
    wide = torch.float64 if scores_BKPC.dtype == torch.float64 else torch.float32
    return ids_BKC, scores_BKPC.log_softmax(-1, dtype=wide)
