"""Drafts that are chosen one after another among each position's candidates, by a score of two tokens and a row.

Suffixes: B sequences, K positions, C candidates of a position, V tokens, R the rank of codes.
"""

import torch
from torch import Tensor

from services.common.kernels.dispatch import Operator


@Operator
def walk_candidates(
    ids_BKC: Tensor,
    scores_BKC: Tensor,
    hidden_BKR: Tensor,
    before_VR: Tensor,
    after_VR: Tensor,
    anchor_B: Tensor,
    scale_B: Tensor | None = None,
) -> Tensor:
    """Return the best candidate of each position behind the ones before [B, K], int64; the lowest among equals.

    A candidate's score has `sum over r of before[token before] * hidden * after[candidate]` added, times a scale. On a
    GPU sums are float32.
    """
    ids_BKC, order_BKC = ids_BKC.sort(-1)
    scores_BKC = scores_BKC.gather(-1, order_BKC)
    after_BKCR = after_VR.index_select(0, ids_BKC.flatten()).view(*ids_BKC.shape, -1)
    token_B, drafts = anchor_B, []
    for position in range(ids_BKC.shape[1]):
        before_BR = before_VR.index_select(0, token_B) * hidden_BKR[:, position]
        pair_BC = torch.matmul(after_BKCR[:, position], before_BR[:, :, None])[:, :, 0]
        if scale_B is not None:
            pair_BC = pair_BC * scale_B[:, None]
        best_B1 = (scores_BKC[:, position] + pair_BC).argmax(-1, keepdim=True)
        token_B = ids_BKC[:, position].gather(1, best_B1)[:, 0]
        drafts.append(token_B)
    return torch.stack(drafts, 1)
