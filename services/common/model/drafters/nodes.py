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


def with_path(found: Candidates, tokens_BD: Tensor, chances_BD: Tensor) -> Candidates:
    """Return the candidates of D positions, and beside them those of a path from elsewhere.

    `chances_BD` is how likely each token of the path is behind those before, 0 where the path has ended: by so much the
    scores behind the path are the path's, and by the rest the head's. What follows a token of the path that is no
    candidate of the head is scored as behind the head's first.
    """
    ids_BDC, scores_BDPC = _beside_nothing(found, tokens_BD)
    alike_BDC = ids_BDC == tokens_BD[:, :, None]
    at_BD = alike_BDC.to(torch.int8).argmax(-1)  # the first: the head's own where it has the token
    before_BD = torch.nn.functional.pad(at_BD[:, :-1], (1, 0))
    row_BD1C = before_BD[:, :, None, None].expand(-1, -1, 1, ids_BDC.shape[-1])
    chances_BD = chances_BD.to(scores_BDPC.dtype)
    own_BDC = scores_BDPC.gather(2, row_BD1C)[:, :, 0] + torch.log1p(-chances_BD)[:, :, None]
    here_BDC = torch.nn.functional.one_hot(at_BD, ids_BDC.shape[-1]) > 0
    path_BDC = torch.where(here_BDC, chances_BD.log()[:, :, None], -torch.inf)
    scores_BDPC = scores_BDPC.scatter(2, row_BD1C, torch.logaddexp(own_BDC, path_BDC)[:, :, None])
    return Candidates(ids_BDC, torch.cat((scores_BDPC[:, :1, :1].expand_as(scores_BDPC[:, :1]), scores_BDPC[:, 1:]), 1))


def _beside_nothing(found: Candidates, tokens_BD: Tensor) -> tuple[Tensor, Tensor]:
    """Return ids [B, D, C] and scores [B, D, C, C], where C is a candidate more, which has no chance yet."""
    more = tokens_BD.shape[1] - found.ids_BKC.shape[1]
    assert more >= 0, "a path is as long as the tree may be deep"
    ids_BDC = torch.nn.functional.pad(found.ids_BKC, (0, 0, 0, more), value=kernels.ABSENT)
    count = ids_BDC.shape[-1]
    scores_BKPC = found.scores_BKPC.expand(-1, -1, count, -1)
    scores_BDPC = torch.nn.functional.pad(scores_BKPC, (0, 1, 0, 0, 0, more), value=-torch.inf)
    return torch.cat((ids_BDC, tokens_BD[:, :, None]), -1), torch.cat((scores_BDPC, scores_BDPC[:, :, :1]), 2)


def chain_of(drafts_BK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens and parents of drafts that follow one another."""
    return drafts_BK, torch.arange(drafts_BK.shape[1], device=drafts_BK.device).expand_as(drafts_BK)
