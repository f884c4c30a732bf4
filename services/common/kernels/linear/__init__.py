"""Matrix products of a few rows with a weight, alone or fused with the other steps of a block."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import reference
from services.common.kernels.linear.normed import Normed

__all__ = ["Normed", "linear", "linear_added", "linear_gated", "linear_normed"]


def linear(x_TD: Tensor, weight_FD: Tensor) -> Tensor:
    """Return `x @ weight.T`, [T, F]."""
    if on_kernel(x_TD):
        from services.common.kernels.linear import kernel

        return kernel.linear(x_TD, weight_FD)
    return reference.linear(x_TD, weight_FD)


def linear_normed(normed: Normed, weight_FD: Tensor, eps: float) -> Tensor:
    """Return `norm @ weight.T`, [T, F]."""
    if on_kernel(weight_FD):
        from services.common.kernels.linear import kernel

        return kernel.linear_normed(normed, weight_FD, eps)
    return reference.linear_normed(normed, weight_FD, eps)


def linear_gated(normed: Normed, weight_FD: Tensor, eps: float) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`, [T, I], of a weight [2 I, D] that holds the gate's rows first."""
    if on_kernel(weight_FD):
        from services.common.kernels.linear import kernel

        return kernel.linear_gated(normed, weight_FD, eps)
    return reference.linear_gated(normed, weight_FD, eps)


def linear_added(
    x_TD: Tensor,
    weight_FD: Tensor,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    keep: bool = False,
    offset: float = 0.0,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum, which may overwrite the stream unless `keep`.

    The norm multiplies by `norm + offset`.
    """
    if on_kernel(x_TD):
        from services.common.kernels.linear import kernel

        return kernel.linear_added(x_TD, weight_FD, stream_TF, norm_F, eps, keep, offset)
    return reference.linear_added(x_TD, weight_FD, stream_TF, norm_F, eps, offset)
