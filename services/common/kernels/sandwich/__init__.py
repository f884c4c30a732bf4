"""What follows a part of a block whose result is normalised before it is added: that norm, the sum, the next norm."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.normed import Normed
from services.common.kernels.sandwich import reference


def add_normed(
    fed_TD: Tensor,
    stream_TD: Tensor,
    own_norm_D: Tensor,
    next_norm_D: Tensor,
    squares_T: Tensor,
    eps: float,
    offset: float = 0.0,
    scale_1: Tensor | None = None,
) -> tuple[Normed, Tensor]:
    """Return the norm of `(stream + norm(fed)) * scale`, and that sum, in memory of its own.

    Args:
        fed_TD: what the part made of rows.
        stream_TD: the residual stream.
        own_norm_D: the weight of the result's norm.
        next_norm_D: that of the norm before the next part.
        squares_T: for the sum's squares, int64.
        eps: of the norms.
        offset: what the norms add to their weights.
        scale_1: what the sum is multiplied by; None: nothing.
    """
    if on_kernel(stream_TD):
        from services.common.kernels.sandwich import kernel

        return kernel.add_normed(fed_TD, stream_TD, own_norm_D, next_norm_D, squares_T, eps, offset, scale_1)
    return reference.add_normed(fed_TD, stream_TD, own_norm_D, next_norm_D, squares_T, eps, offset, scale_1)
