"""Root-mean-square normalisation."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.rms_norm import reference


def rms_norm(x: Tensor, weight_D: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """Return `x / rms(x) * (weight + offset)` over the last dimension; statistics in float32 or wider.

    Zero-centred norms store their weights less one, and their `offset` is 1. Adding the one to a stored weight would
    lose digits in a narrow type.
    """
    if on_kernel(x):
        from services.common.kernels.rms_norm import kernel

        return kernel.rms_norm(x, weight_D, eps, offset)
    return reference.rms_norm(x, weight_D, eps, offset)
