"""Matrix products in torch."""

import torch.nn.functional as F
from torch import Tensor


def linear(x_TD: Tensor, weight_FD: Tensor) -> Tensor:
    """Return `x @ weight.T`."""
    return F.linear(x_TD, weight_FD)
