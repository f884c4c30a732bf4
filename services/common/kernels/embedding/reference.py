"""Embedding lookup in torch."""

from torch import Tensor


def embedding(ids_T: Tensor, weight_VD: Tensor, scale: float = 1.0) -> Tensor:
    """Return the rows of flat ids times `scale`; ids must lie in the table."""
    rows_TD = weight_VD.index_select(0, ids_T)
    return rows_TD if scale == 1.0 else rows_TD * scale
