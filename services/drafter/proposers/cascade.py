"""Two proposers in one: where a text repeats itself for long enough drafts continue it, elsewhere a checkpoint drafts.

The choice is each row's own, so a row drafts the same in any company. Suffixes: B rows, C context, K draft tokens.
"""

import torch
from torch import Tensor

from services.common.model.drafters.nodes import chain_of
from services.drafter.arena_view import ArenaView
from services.drafter.proposers import Proposer
from services.drafter.proposers.ngram import lookup


class CascadeProposer:
    """Looks up suffixes of `shortest` to `longest` tokens before it takes what another proposer drafts."""

    def __init__(self, other: Proposer, longest: int, shortest: int) -> None:
        self._other, self._longest, self._shortest = other, longest, shortest

    @property
    def kind(self) -> str:
        """That of the other."""
        return self._other.kind

    @property
    def revision(self) -> str:
        """That of the other."""
        return self._other.revision

    @property
    def max_draft(self) -> int | None:
        """That of the other."""
        return self._other.max_draft

    @property
    def reads_memory(self) -> bool:
        """As the other."""
        return self._other.reads_memory

    def check(self, shared: ArenaView) -> None:
        """As the other: every arena carries the history.

        Raises:
            ValueError: as the other.
        """
        self._other.check(shared)

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1] tokens: of each row one proposer's alone."""
        found_BK = self._found(shared, rows_B, width)
        return torch.where(found_BK[:, :1] >= 0, found_BK, self._other.propose(shared, rows_B, width))

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """A row's repetition as a chain, elsewhere the other's tree."""
        found_BK = self._found(shared, rows_B, width)
        (chained_BK, parents_BK), (tokens_BK, other_BK) = chain_of(found_BK), self._other.nodes(shared, rows_B, width)
        looked_up_B1 = found_BK[:, :1] >= 0
        return torch.where(looked_up_B1, chained_BK, tokens_BK), torch.where(looked_up_B1, parents_BK, other_BK)

    def _found(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        history_BC = shared.history_SC.index_select(0, rows_B)
        length_B = shared.history_length_S.index_select(0, rows_B).clamp(0, history_BC.shape[1])
        return lookup(history_BC, length_B, width - 1, self._longest, self._shortest)
