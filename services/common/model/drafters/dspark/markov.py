"""A head whose logits depend on the token before: a bias of low rank for every pair of tokens."""

import torch
from torch import Tensor

from services.common.kernels.argmax_token import argmax_token
from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight
from services.common.kernels.walk_candidates import walk_candidates
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.dspark.confidence import Confidence
from services.common.model.drafters.heads import best_of, log_chances, scaled_logits
from services.common.model.drafters.nodes import CANDIDATES, Candidates
from services.common.model.drafters.spec import DrafterSpec
from services.common.model.drafters.vocabulary import Vocabulary


class MarkovHead:
    """Drafts one after another: each row's logits, and `second @ first[token before]`."""

    sharpness = 1.0

    def __init__(
        self,
        spec: DrafterSpec,
        first_VR: Tensor,
        second_VR: Tensor,
        vocabulary: Vocabulary,
        confidence: Confidence | None = None,
    ) -> None:
        """`first_VR` has a row for each of the target's tokens, `second_VR` for each that the head scores."""
        self._spec, self._vocabulary, self._confidence = spec, vocabulary, confidence
        self._first_VR, self._second_VR, self._few = first_VR, second_VR, 0

    def narrow(self, candidates: int) -> None:
        """The bias reads rows of so many tokens then, and not of all."""
        self._few = min(candidates, len(self._second_VR)) if self._vocabulary.whole else 0

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """One product scores all rows; behind it is a product of low rank for each draft."""
        batch, count, width = hidden_BKD.shape
        if self._few:
            found = best_of(hidden_BKD, head, self._few, self._spec, coupling)
            ones_BKR = self._first_VR.new_ones(batch, count, self._first_VR.shape[1])
            scale_B = None if coupling is None else coupling.scale_B
            return walk_candidates(*found, ones_BKR, self._first_VR, self._second_VR, anchor_B, scale_B)
        coupling = None if coupling is None else self._held(coupling)
        logits_BKV = scaled_logits(hidden_BKD.reshape(-1, width), head, self._spec).view(batch, count, -1)
        before_B, drafts = anchor_B, []
        for position in range(count):
            bias_BV = linear(self._first_VR.index_select(0, before_B), self._second_VR)
            scores_BV = logits_BKV[:, position] + bias_BV
            if coupling is not None:
                scores_BV = coupling.at(scores_BV, position)
            before_B = self._vocabulary.tokens(argmax_token(scores_BV))
            drafts.append(before_B)
        return torch.stack(drafts, 1)

    def rank(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Candidates:
        """Candidates are the best behind the chain's draft, each scored by each candidate of the position before.

        Where the checkpoint says how sure it is, candidates of a position have that chance together.
        """
        batch, count, width = hidden_BKD.shape
        coupling = None if coupling is None else self._held(coupling)
        logits_BKV = scaled_logits(hidden_BKD.reshape(-1, width), head, self._spec).view(batch, count, -1)
        most = min(CANDIDATES, logits_BKV.shape[-1])
        before_BP, found, scored, sure = anchor_B[:, None].expand(-1, most), [], [], []
        for position in range(count):
            first_BPR = self._first_VR.index_select(0, before_BP.flatten()).view(*before_BP.shape, -1)
            if self._confidence is not None:
                sure.append(self._confidence.log_chances(hidden_BKD[:, position], first_BPR))
            scores_BPV = self._behind(logits_BKV[:, position], first_BPR, coupling, position)
            entries_BC = scores_BPV[:, 0].topk(most, -1).indices
            scored.append(scores_BPV.gather(2, entries_BC[:, None].expand(-1, most, -1)))
            before_BP = self._vocabulary.tokens(entries_BC)
            found.append(before_BP)
        scores_BKPC = log_chances(torch.stack(scored, 1), coupling)
        if sure:
            scores_BKPC = scores_BKPC + torch.stack(sure, 1)[..., None]
        return Candidates(torch.stack(found, 1), scores_BKPC)

    def _held(self, coupling: Coupling) -> Coupling | None:
        """Return the noise of the entries; None where it would have to be made for all of them."""
        return None if coupling.draws is not None else self._vocabulary.coupling(coupling)

    def _behind(self, logits_BV: Tensor, first_BPR: Tensor, coupling: Coupling | None, position: int) -> Tensor:
        """Return the scores of a position behind each of some tokens, by their codes [B, P, V]."""
        bias_NV = linear(first_BPR.flatten(0, 1), self._second_VR)
        scores_BPV = logits_BV[:, None] + bias_NV.view(*first_BPR.shape[:2], -1)
        if coupling is None:
            return scores_BPV
        return torch.stack([coupling.at(scores_BV, position) for scores_BV in scores_BPV.unbind(1)], 1)
