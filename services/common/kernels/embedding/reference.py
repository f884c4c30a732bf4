"""Embedding lookup in torch."""

from torch import Tensor


def embedding(ids_T: Tensor, weight_VD: Tensor) -> Tensor:
    """Return the rows of flat ids."""
    return weight_VD.index_select(0, ids_T)
