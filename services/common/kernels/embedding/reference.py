"""Embedding lookup in torch."""

import torch
from torch import Tensor


def embedding(ids_T: Tensor, weight_VD: Tensor, scale: float = 1.0) -> Tensor:
    """Return the rows of flat ids times `scale`; ids must lie in the table."""
    rows_TD = weight_VD.index_select(0, ids_T)
    return rows_TD if scale == 1.0 else rows_TD * scale


def begin_rows(
    ids_T: Tensor, weight_VD: Tensor, scale: float = 1.0, norms: int = 0, slots_T: Tensor | None = None, least: int = 0
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the rows of flat ids times `scale`, zeros [norms, T], int64, and which rows have a slot from `least` on.

    Ids must lie in the table.
    """
    squares_NT = torch.zeros((norms, len(ids_T)), dtype=torch.int64, device=weight_VD.device)
    return embedding(ids_T, weight_VD, scale), squares_NT, None if slots_T is None else slots_T >= least
