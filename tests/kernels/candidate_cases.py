"""Candidates of drafts, for tests of kernels that rank and walk them."""

import torch
from torch import Tensor

VOCAB = 97


def drawn(batch: int, count: int, candidates: int, rank: int, dtype: torch.dtype) -> list[Tensor]:
    """Candidates in no order, best scores first, codes and anchors."""
    draw = torch.Generator().manual_seed(batch + candidates)
    ids = torch.stack([torch.randperm(VOCAB, generator=draw)[:candidates] for _ in range(batch * count)])
    scores = torch.randn(batch, count, candidates, generator=draw).sort(-1, descending=True).values
    hidden, before, after = (
        torch.randn(shape, generator=draw).to(dtype) for shape in ((batch, count, rank), (VOCAB, rank), (VOCAB, rank))
    )
    anchors = torch.randint(0, VOCAB, (batch,), generator=draw)
    return [ids.view(batch, count, candidates), scores, hidden, before, after, anchors]
