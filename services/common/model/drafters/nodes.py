"""What a head says of trees: the candidates of each position, and how likely they are.

Suffixes: B sequences, K positions of the block, P candidates of the position before, C candidates of a position.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.kernels import choose_nodes as kernels

CANDIDATES = 8
"""Of a position: more change what sixteen rows accept by less than one in a hundred (docs/log/2026-11.md)."""
COUPLED_SURENESS = 0.7
"""Factor on scores that hold the target's own noise: alone they are too sure (docs/log/2026-11.md)."""


class Candidates(NamedTuple):
    """Tokens [B, K, C] that may follow each position, and their log-probabilities [B, K, P, C].

    P is 1 where a head scores a position by itself; else they depend on the candidate before, of as many as there are.
    At the first position, which follows the anchor, all P are equal.
    """

    ids_BKC: Tensor
    scores_BKPC: Tensor


def choose_nodes(found: Candidates, count: int) -> tuple[Tensor, Tensor]:
    """Return tokens and parents [B, count], int64, of the best nodes of each sequence, as the operator says."""
    return kernels.choose_nodes(found.ids_BKC, found.scores_BKPC, count)


def chain_of(drafts_BK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens and parents of drafts that follow one another."""
    return drafts_BK, torch.arange(drafts_BK.shape[1], device=drafts_BK.device).expand_as(drafts_BK)
