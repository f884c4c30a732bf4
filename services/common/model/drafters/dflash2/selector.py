"""A head that scores the best candidates of each row by the token before them."""

from torch import Tensor

from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight
from services.common.kernels.rank_candidates import rank_candidates
from services.common.kernels.walk_candidates import walk_candidates
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.heads import best_of, trust
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

    def narrow(self, candidates: int) -> None:
        """The checkpoint says among how many."""

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """Of equal candidates the lowest is chosen."""
        ids_BKC, scores_BKC, hidden_BKR = self._best(hidden_BKD, head, coupling)
        scale_B = None if coupling is None else coupling.scale_B
        return walk_candidates(ids_BKC, scores_BKC, hidden_BKR, self._before_VR, self._after_VR, anchor_B, scale_B)

    def rank(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Candidates:
        """Each candidate by each of the position before; candidates are in the order of their ids."""
        best = self._best(hidden_BKD, head, coupling)
        of_draw = (None, None) if coupling is None else (coupling.scale_B, trust(coupling))
        return Candidates(*rank_candidates(*best, self._before_VR, self._after_VR, anchor_B, *of_draw))

    def _best(self, hidden_BKD: Tensor, head: Weight, coupling: Coupling | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return candidates and their scores [B, K, C], and the projected rows [B, K, R]."""
        ids_BKC, scores_BKC = best_of(hidden_BKD, head, self._candidates, self._spec, coupling)
        hidden_RR = linear(hidden_BKD.reshape(-1, hidden_BKD.shape[-1]), self._hidden_RD)
        return ids_BKC, scores_BKC, hidden_RR.view(*ids_BKC.shape[:2], -1)
