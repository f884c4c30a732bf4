"""Prompt lookup: continues as the text mostly did where its longest repeated suffix occurred before.

After prompt lookup decoding (Saxena 2023). Suffixes: B rows, C context, K draft tokens.
"""

import torch
from torch import Tensor

from services.common.model.drafters.nodes import chain_of
from services.drafter.arena_view import ArenaView
from services.drafter.proposers import NO_DRAFT
from services.drafter.proposers.past import PastTexts
from services.drafter.proposers.repeats import Repeats, repeats


class NgramProposer:
    """Looks up suffixes of `shortest` to `longest` tokens in each row's history, and in its tenant's `past` answers."""

    kind = "ngram"
    reads_memory = False
    draws = False
    revision = ""
    max_draft: int | None = None

    def __init__(self, longest: int = 4, shortest: int = 1, past: PastTexts | None = None) -> None:
        self._longest, self._shortest, self._past = longest, shortest, past

    def check(self, shared: ArenaView) -> None:
        """Any arena will do: all carry the history."""

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1] tokens; a row without a repeated suffix gets NO_DRAFT throughout."""
        history_BC = shared.history_SC.index_select(0, rows_B)
        length_B = shared.history_length_S.index_select(0, rows_B).clamp(0, history_BC.shape[1])
        if self._past is None:
            return lookup(history_BC, length_B, width - 1, self._longest, self._shortest)
        found = repeats(history_BC, length_B, width - 1, self._longest, self._shortest)
        return _drafts(self._past.beside(found, shared, rows_B), self._shortest)

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """A text repeats itself in one way: chains."""
        return chain_of(self.propose(shared, rows_B, width))


def lookup(history_BC: Tensor, length_B: Tensor, count: int, longest: int, shortest: int) -> Tensor:
    """Drafts [B, count] i64 for histories of which the first `length_B` tokens are valid."""
    return _drafts(repeats(history_BC, length_B, count, longest, shortest), shortest)


def _drafts(found: Repeats, shortest: int) -> Tensor:
    return torch.where(found.size_B[:, None] >= shortest, found.tokens_BK, NO_DRAFT)
