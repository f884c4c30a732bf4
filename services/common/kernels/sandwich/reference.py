"""Two norms and the sum between them in torch."""

from torch import Tensor

from services.common.kernels.normed import Normed
from services.common.kernels.rms_norm.reference import rms_norm


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
    """Return the norm of the sum, divided already, and the sum; squares are the kernel's alone."""
    total_TD = stream_TD + rms_norm(fed_TD, own_norm_D, eps, offset)
    if scale_1 is not None:
        total_TD = total_TD * scale_1
    return Normed(rms_norm(total_TD, next_norm_D, eps, offset)), total_TD
