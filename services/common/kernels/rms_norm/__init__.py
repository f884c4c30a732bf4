"""Root-mean-square normalisation."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.rms_norm import reference


def rms_norm(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """Return `x / rms(x) * weight` over the last dimension; statistics in float32 or wider."""
    if on_kernel(x):
        from services.common.kernels.rms_norm import kernel

        return kernel.rms_norm(x, weight_D, eps)
    return reference.rms_norm(x, weight_D, eps)
