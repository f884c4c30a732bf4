"""Proposes nothing: every round is verified as if it were plain."""

import torch
from torch import Tensor

from services.common.model.drafters.nodes import chain_of
from services.drafter.arena_view import ArenaView
from services.drafter.proposers import NO_DRAFT


class NoneProposer:
    """Leaves every draft empty."""

    kind = "none"
    reads_memory = False
    draws = False
    revision = ""
    max_draft: int | None = None

    def check(self, shared: ArenaView) -> None:
        """Any arena will do."""

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1], all NO_DRAFT."""
        return torch.full((rows_B.shape[0], width - 1), NO_DRAFT, dtype=torch.int64, device=rows_B.device)

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """No drafts, as the nodes of a chain."""
        return chain_of(self.propose(shared, rows_B, width))
