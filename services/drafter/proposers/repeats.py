"""How a text goes on where its end has occurred before, and how likely: prompt lookup, alone or beside learned drafts.

Of the latest occurrences of the longest repeated suffix one is followed: the one that most of the others go on with for
longest. Suffixes: B rows, C context, E places where a continuation may start, M occurrences, K draft tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_BEFORE_TEXT = -1
_NO_SUFFIX = -2
OCCURRENCES = 8
"""Of the longest suffix that are compared; the latest ones."""
DOUBT, FALL = 2.0, 1.5
"""A token behind `n` equal ones is trusted by 1 - doubt / (n + 1) ^ fall: chosen on text (docs/log/2026-11.md)."""
LEAST = 0.05
"""A continuation ends where its whole path is less likely than this."""


class Repeats(NamedTuple):
    """Continuations [B, K] i64, and the chance [B, K] f32 of each token behind those before; 0 where it is too low.

    `size_B` is how many tokens the suffix has that occurred before; without one tokens mean nothing.
    """

    tokens_BK: Tensor
    chances_BK: Tensor
    size_B: Tensor


def repeats(history_BC: Tensor, length_B: Tensor, count: int, longest: int, shortest: int) -> Repeats:
    """Return how texts go on of which the first `length_B` tokens are valid.

    Suffixes of `shortest` to `longest` tokens are looked up. A continuation that reaches the present repeats itself
    with the period of the match.
    """
    start_BM, size_B = occurrences(history_BC, length_B, longest)
    period_BM1 = (length_B[:, None] - start_BM).clamp_min(1)[:, :, None]
    step_K = torch.arange(count, device=history_BC.device)
    index_BMK = (start_BM[:, :, None] + step_K % period_BM1).clamp(0, history_BC.shape[1] - 1)
    tokens_BMK = history_BC.gather(1, index_BMK.flatten(1)).view(index_BMK.shape).to(torch.int64)
    agreeing_BMK = _agreeing(tokens_BMK, start_BM > 0)
    best_B11 = agreeing_BMK.sum(-1).argmax(1)[:, None, None].expand(-1, 1, count)
    agreeing_BK = agreeing_BMK.gather(1, best_B11)[:, 0]
    before_BK = F.pad(agreeing_BK[:, :-1], (1, 0)).float()
    before_BK[:, 0] = (start_BM > 0).sum(1)
    known_BK = (size_B[:, None] + step_K + 1).float()
    chances_BK = agreeing_BK / before_BK.clamp_min(1.0) * (1.0 - DOUBT / known_BK**FALL).clamp_min(0.0)
    found_BK = (size_B[:, None] >= shortest) & (chances_BK.cumprod(1) >= LEAST)
    return Repeats(tokens_BMK.gather(1, best_B11)[:, 0], torch.where(found_BK, chances_BK, 0.0), size_B)


def occurrences(history_BC: Tensor, length_B: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Return where the latest continuations of the longest suffix start [B, M], latest first, and its length [B].

    A place is 0 where there are no more; the length is 0 where nothing has occurred before.
    """
    context = history_BC.shape[1]
    size_BE = matching(history_BC, length_B, longest)
    size_B = size_BE.amax(1)
    place_E = torch.arange(context, device=history_BC.device)
    there_BE = (size_BE == size_B[:, None]) & (size_B[:, None] > 0)
    start_BM = torch.where(there_BE, place_E, 0).topk(min(OCCURRENCES, context), 1).values
    return start_BM, size_B


def matching(history_BC: Tensor, length_B: Tensor, longest: int) -> Tensor:
    """Return how many tokens before each place equal those before the end [B, E], at most `longest`; 0: not one."""
    context = history_BC.shape[1]
    padded_BC = F.pad(history_BC, (longest, 0), value=_BEFORE_TEXT)
    place_E = torch.arange(context, device=history_BC.device)
    matching_BE = (place_E[None, :] >= 1) & (place_E[None, :] < length_B[:, None])
    size_BE = torch.zeros_like(history_BC, dtype=torch.int64)
    for back in range(1, longest + 1):
        at_B1 = (length_B - back).clamp_min(0)[:, None]
        suffix_B1 = torch.where(length_B[:, None] >= back, history_BC.gather(1, at_B1), _NO_SUFFIX)
        before_BE = padded_BC[:, longest - back : longest - back + context]
        matching_BE = matching_BE & (before_BE == suffix_B1)
        size_BE = size_BE + matching_BE
    return size_BE


def _agreeing(tokens_BMK: Tensor, valid_BM: Tensor) -> Tensor:
    """Return how many occurrences [B, M, K] go on as each does, up to each token, itself among them."""
    alike_BMMK = (tokens_BMK[:, :, None] == tokens_BMK[:, None]) & (valid_BM[:, :, None] & valid_BM[:, None])[..., None]
    return alike_BMMK.to(torch.int32).cumprod(-1).sum(2)
