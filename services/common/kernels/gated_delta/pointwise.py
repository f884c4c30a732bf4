"""Sigmoid, SiLU and softplus out of exp and log1p.

Torch's own have other last bits for a number at the end of a tensor than further in; these have the same everywhere.
"""

import torch
from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    """Return `1 / (1 + exp(-x))`."""
    return torch.exp(-x).add_(1.0).reciprocal_()


def silu(x: Tensor) -> Tensor:
    """Return `x * sigmoid(x)`."""
    return sigmoid(x).mul_(x)


def softplus(x: Tensor) -> Tensor:
    """Return `log(1 + exp(x))` without overflow."""
    return torch.exp(-x.abs()).log1p_().add_(x.clamp(min=0.0))
