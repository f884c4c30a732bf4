"""Per-head RMSNorm followed by rotary position embedding, and its tables."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.rope import reference
from services.common.kernels.rope.tables import Rotation, RotationTable

__all__ = ["Rotation", "RotationTable", "norm_rope"]


def norm_rope(x_THD: Tensor, weight_HD: Tensor, rotation: Rotation, eps: float) -> Tensor:
    """Normalise every head of every row, scale by its weight, rotate to the row's position."""
    if on_kernel(x_THD):
        from services.common.kernels.rope import kernel

        return kernel.norm_rope(x_THD, weight_HD, rotation, eps)
    return reference.norm_rope(x_THD, weight_HD, rotation, eps)
