"""Matrix products of a few rows with a weight."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import reference


def linear(x_TD: Tensor, weight_FD: Tensor) -> Tensor:
    """Return `x @ weight.T`, [T, F]."""
    if on_kernel(x_TD):
        from services.common.kernels.linear import kernel

        return kernel.linear(x_TD, weight_FD)
    return reference.linear(x_TD, weight_FD)
