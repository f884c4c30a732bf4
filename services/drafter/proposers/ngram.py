"""Prompt lookup: continues as the text mostly did where its longest repeated suffix occurred before.

After prompt lookup decoding (Saxena 2023). Suffixes: B rows, C context, K draft tokens.
"""

import torch
from torch import Tensor

from services.common.model.drafters.nodes import chain_of
from services.drafter.arena_view import ArenaView
from services.drafter.proposers import NO_DRAFT
from services.drafter.proposers.repeats import repeats


class NgramProposer:
    """Looks up suffixes of `shortest` to `longest` tokens in each row's history."""

    kind = "ngram"
    reads_memory = False
    revision = ""
    max_draft: int | None = None

    def __init__(self, longest: int = 4, shortest: int = 1) -> None:
        self._longest = longest
        self._shortest = shortest

    def check(self, shared: ArenaView) -> None:
        """Any arena will do: all carry the history."""

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1] tokens; a row without a repeated suffix gets NO_DRAFT throughout."""
        history_BC = shared.history_SC.index_select(0, rows_B)
        length_B = shared.history_length_S.index_select(0, rows_B).clamp(0, history_BC.shape[1])
        return lookup(history_BC, length_B, width - 1, self._longest, self._shortest)

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """A text repeats itself in one way: chains."""
        return chain_of(self.propose(shared, rows_B, width))


def lookup(history_BC: Tensor, length_B: Tensor, count: int, longest: int, shortest: int) -> Tensor:
    """Drafts [B, count] i64 for histories of which the first `length_B` tokens are valid."""
    found = repeats(history_BC, length_B, count, longest, shortest)
    return torch.where(found.size_B[:, None] >= shortest, found.tokens_BK, NO_DRAFT)
