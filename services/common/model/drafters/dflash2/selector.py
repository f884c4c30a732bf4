"""A head that scores the best candidates of each row by the token before them."""

import torch
from torch import Tensor

from services.common.kernels.argmax_token import top_of_product
from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight
from services.common.kernels.walk_candidates import walk_candidates
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.heads import bounded, log_chances, scaled_logits
from services.common.model.drafters.nodes import Candidates
from services.common.model.drafters.spec import DrafterSpec


class SelectorHead:
    """Drafts one after another: the logits of a row's best tokens, and a bilinear score with the token before."""

    sharpness = 1.3
    """Knowing the token before leaves logits too flat all the same: counted on drawn text (docs/log/2026-11.md)."""

    def __init__(
        self, spec: DrafterSpec, before_VR: Tensor, after_VR: Tensor, hidden_RD: Tensor, candidates: int
    ) -> None:
        """The codebooks of tokens before and of candidates, and the projection of hidden states."""
        self._spec = spec
        self._before_VR, self._after_VR, self._hidden_RD = before_VR, after_VR, hidden_RD
        self._candidates = candidates

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """Of equal candidates the lowest is chosen."""
        ids_BKC, scores_BKC, hidden_BKR = self._best(hidden_BKD, head, coupling)
        scale_B = None if coupling is None else coupling.scale_B
        return walk_candidates(ids_BKC, scores_BKC, hidden_BKR, self._before_VR, self._after_VR, anchor_B, scale_B)

    def rank(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Candidates:
        """Each candidate by each of the position before; candidates are in the order of their ids."""
        ids_BKC, scores_BKC, hidden_BKR = self._best(hidden_BKD, head, coupling)
        ids_BKC, order_BKC = ids_BKC.sort(-1)
        scores_BKC = scores_BKC.gather(-1, order_BKC)
        first_B1C = anchor_B[:, None, None].expand(-1, 1, ids_BKC.shape[-1])
        before_BKP = torch.cat((first_B1C, ids_BKC[:, :-1]), 1)
        before_BKPR = self._before_VR.index_select(0, before_BKP.flatten()).view(*before_BKP.shape, -1)
        after_BKCR = self._after_VR.index_select(0, ids_BKC.flatten()).view(*ids_BKC.shape, -1)
        pair_BKPC = torch.matmul(before_BKPR * hidden_BKR[:, :, None], after_BKCR.transpose(-1, -2))
        if coupling is not None:
            pair_BKPC = pair_BKPC * coupling.scale_B[:, None, None, None]
        return Candidates(ids_BKC, log_chances(scores_BKC[:, :, None] + pair_BKPC, coupling))

    def _best(self, hidden_BKD: Tensor, head: Weight, coupling: Coupling | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return candidates and their scores [B, K, C], and the projected rows [B, K, R]."""
        batch, count, width = hidden_BKD.shape
        rows_RD = hidden_BKD.reshape(-1, width)
        if coupling is None:
            values_RC, ids_RC = top_of_product(rows_RD, head, self._candidates)
            values_RC = bounded(values_RC, self._spec)  # the order stays
        else:
            scores_RV = coupling.apply(scaled_logits(rows_RD, head, self._spec), count)
            values_RC, ids_RC = scores_RV.topk(self._candidates, -1)
        hidden_BKR = linear(rows_RD, self._hidden_RD).view(batch, count, -1)
        return ids_RC.view(batch, count, -1), values_RC.view(batch, count, -1), hidden_BKR
