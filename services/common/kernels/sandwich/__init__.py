"""What follows a part of a block whose result is normalised before it is added: that norm, the sum, the next norm."""

from torch import Tensor

from services.common.kernels.dispatch import told_by
from services.common.kernels.normed import Normed
from services.common.kernels.rms_norm.reference import rms_norm


@told_by(1)
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

    In torch the norm is divided already, and squares are left alone.

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
    total_TD = stream_TD + rms_norm(fed_TD, own_norm_D, eps, offset)
    if scale_1 is not None:
        total_TD = total_TD * scale_1
    return Normed(rms_norm(total_TD, next_norm_D, eps, offset)), total_TD
