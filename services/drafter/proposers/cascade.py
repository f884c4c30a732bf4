"""Two proposers in one: where a text repeats itself for long enough, how it went on stands beside what is learned.

Chains are one proposer's alone, each row's own. In a tree a repetition is a path beside the nodes of the checkpoint, in
whose place it stands as far as it is likelier. A row drafts the same in any company. Suffixes: B rows, K draft tokens.
"""

from typing import Protocol

import torch
from torch import Tensor

from services.common.model.drafters.nodes import Candidates, chain_of, choose_nodes, with_path
from services.drafter.arena_view import ArenaView
from services.drafter.proposers import NO_DRAFT, Proposer
from services.drafter.proposers.past import PastTexts
from services.drafter.proposers.repeats import Repeats, repeats

_LIKELY = 0.5
"""A chain continues a repetition whose first token is likelier than this."""


class Learned(Proposer, Protocol):
    """A proposer with a checkpoint."""

    def ranked(self, shared: ArenaView, rows_B: Tensor, width: int) -> Candidates | None:
        """The candidates of the positions that a tree of so many rows can reach; None where there are only chains."""


class CascadeProposer:
    """Looks up suffixes of `shortest` to `longest` tokens beside what another proposer drafts.

    With `past` a tenant's earlier answers are looked up as well.
    """

    def __init__(self, other: Learned, longest: int, shortest: int, past: PastTexts | None = None) -> None:
        self._other, self._longest, self._shortest, self._past = other, longest, shortest, past

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

    @property
    def draws(self) -> bool:
        """As the other."""
        return self._other.draws

    def check(self, shared: ArenaView) -> None:
        """As the other: every arena carries the history.

        Raises:
            ValueError: as the other.
        """
        self._other.check(shared)

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1] tokens: of each row one proposer's alone. A repetition ends where it is not likely."""
        found = self._found(shared, rows_B, width)
        looked_up_BK = torch.where(found.chances_BK > 0, found.tokens_BK, NO_DRAFT)
        likely_B1 = found.chances_BK[:, :1] > _LIKELY
        return torch.where(likely_B1, looked_up_BK, self._other.propose(shared, rows_B, width))

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """The best tree of the checkpoint's candidates and the repetition; chains where a checkpoint ranks nothing."""
        ranked = self._other.ranked(shared, rows_B, width)
        if ranked is None:
            return chain_of(self.propose(shared, rows_B, width))
        found = self._found(shared, rows_B, width)
        return choose_nodes(with_path(ranked, found.tokens_BK, found.chances_BK), width - 1)

    def _found(self, shared: ArenaView, rows_B: Tensor, width: int) -> Repeats:
        history_BC = shared.history_SC.index_select(0, rows_B)
        length_B = shared.history_length_S.index_select(0, rows_B).clamp(0, history_BC.shape[1])
        found = repeats(history_BC, length_B, width - 1, self._longest, self._shortest)
        return found if self._past is None else self._past.beside(found, shared, rows_B)
