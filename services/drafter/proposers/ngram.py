"""Prompt lookup: continues as the text did after the latest occurrence of its longest repeated suffix.

After prompt lookup decoding (Saxena 2023). A continuation that reaches the present repeats itself with the period
of the match. Suffixes: B rows, C context, E places where a continuation may start, K draft tokens.
"""

import torch
from torch import Tensor

from services.common.model.drafters.nodes import chain_of
from services.drafter.arena_view import ArenaView
from services.drafter.proposers import NO_DRAFT
from services.drafter.proposers.repeats import matching


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
    start_B, size_B = _latest_longest_match(history_BC, length_B, longest)
    period_B1 = (length_B - start_B).clamp_min(1)[:, None]
    step_K = torch.arange(count, device=history_BC.device)
    index_BK = (start_B[:, None] + step_K % period_B1).clamp(0, history_BC.shape[1] - 1)
    tokens_BK = history_BC.gather(1, index_BK).to(torch.int64)
    return torch.where(size_B[:, None] >= shortest, tokens_BK, NO_DRAFT)


def _latest_longest_match(history_BC: Tensor, length_B: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Where the continuation starts and how many tokens before it equal the suffix (0: no match)."""
    context = history_BC.shape[1]
    size_BE = matching(history_BC, length_B, longest)
    best_B = (size_BE * context + torch.arange(context, device=history_BC.device)).argmax(1)
    return best_B, size_BE.gather(1, best_B[:, None])[:, 0]
