"""Argmax in torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

_ROWS = 512


def argmax_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension."""
    return logits.argmax(-1)


def argmax_of_product(rows_RD: Tensor, weight_VD: Tensor) -> Tensor:
    """Return the argmax of every row of `rows @ weight.T`; scores of some rows exist at a time."""
    return torch.cat([F.linear(some_RD, weight_VD).argmax(-1) for some_RD in rows_RD.split(_ROWS)])
