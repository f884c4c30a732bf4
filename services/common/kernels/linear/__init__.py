"""Matrix products of a few rows with a weight."""

from torch import Tensor

from services.common.kernels.linear import reference


def linear(x_TD: Tensor, weight_FD: Tensor) -> Tensor:
    """Return `x @ weight.T`, [T, F]."""
    return reference.linear(x_TD, weight_FD)


def pack(weight_FD: Tensor) -> Tensor:
    """Return the same matrix in the memory order that `linear` reads fastest on the weight's device."""
    return weight_FD.contiguous() if weight_FD.is_cuda else weight_FD.t().contiguous().t()
