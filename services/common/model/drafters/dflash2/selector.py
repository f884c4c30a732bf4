"""A head that scores the best candidates of each row by the token before them."""

import torch
from torch import Tensor

from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.heads import log_chances, scaled_logits
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
        """Candidates are in the order of their ids, so that the lowest of equals is chosen."""
        ids_BKC, scores_BKC, hidden_BKR, after_BKCR = self._best(hidden_BKD, head, coupling)
        token_B, drafts = anchor_B, []
        for position in range(hidden_BKD.shape[1]):
            before_BR = self._before_VR.index_select(0, token_B) * hidden_BKR[:, position]
            pair_BC = torch.matmul(after_BKCR[:, position], before_BR[:, :, None])[:, :, 0]
            if coupling is not None:
                pair_BC = pair_BC * coupling.scale_B[:, None]
            best_B1 = (scores_BKC[:, position] + pair_BC).argmax(-1, keepdim=True)
            token_B = ids_BKC[:, position].gather(1, best_B1)[:, 0]
            drafts.append(token_B)
        return torch.stack(drafts, 1)

    def rank(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Candidates:
        """Each candidate by each of the position before."""
        ids_BKC, scores_BKC, hidden_BKR, after_BKCR = self._best(hidden_BKD, head, coupling)
        first_B1C = anchor_B[:, None, None].expand(-1, 1, ids_BKC.shape[-1])
        before_BKP = torch.cat((first_B1C, ids_BKC[:, :-1]), 1)
        before_BKPR = self._before_VR.index_select(0, before_BKP.flatten()).view(*before_BKP.shape, -1)
        pair_BKPC = torch.matmul(before_BKPR * hidden_BKR[:, :, None], after_BKCR.transpose(-1, -2))
        if coupling is not None:
            pair_BKPC = pair_BKPC * coupling.scale_B[:, None, None, None]
        return Candidates(ids_BKC, log_chances(scores_BKC[:, :, None] + pair_BKPC, coupling))

    def _best(
        self, hidden_BKD: Tensor, head: Weight, coupling: Coupling | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return candidates and their scores [B, K, C], projected rows [B, K, R] and the candidates' codes."""
        batch, count, width = hidden_BKD.shape
        rows_RD = hidden_BKD.reshape(-1, width)
        logits_RV = scaled_logits(rows_RD, head, self._spec)
        ranked_RV = logits_RV if coupling is None else coupling.apply(logits_RV, count)
        ids_RC = ranked_RV.topk(self._candidates, -1).indices.sort(-1).values
        ids_BKC = ids_RC.view(batch, count, -1)
        scores_BKC = ranked_RV.gather(1, ids_RC).view(batch, count, -1)
        hidden_BKR = linear(rows_RD, self._hidden_RD).view(batch, count, -1)
        after_BKCR = self._after_VR.index_select(0, ids_RC.flatten()).view(*ids_BKC.shape, -1)
        return ids_BKC, scores_BKC, hidden_BKR, after_BKCR
