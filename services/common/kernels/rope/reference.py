"""Head norm and rotary embedding in torch."""

import torch
from torch import Tensor

from services.common.kernels.rms_norm.reference import rms_norm
from services.common.kernels.rope.tables import Rotation


def norm_rope(x_THD: Tensor, weight_HD: Tensor | None, rotation: Rotation, eps: float, offset: float = 0.0) -> Tensor:
    """Normalise every head of every row, scale by its weight plus `offset`, rotate to the row's position.

    Without a weight heads are only rotated.
    """
    size, normed_THD = x_THD.shape[-1], x_THD
    if weight_HD is not None and offset == 0.0:
        normed_THD = rms_norm(x_THD, None, eps).mul_(weight_HD)
    elif weight_HD is not None:
        normed_THD = rms_norm(x_THD, None, eps) * (weight_HD.to(rotation.cos_T1D.dtype) + offset)
    if normed_THD.dtype != rotation.cos_T1D.dtype:
        normed_THD = normed_THD.to(rotation.cos_T1D.dtype)
    turned_THD = torch.addcmul(normed_THD * rotation.cos_T1D, normed_THD.roll(size // 2, -1), rotation.sin_T1D)
    return turned_THD if turned_THD.dtype == x_THD.dtype else turned_THD.to(x_THD.dtype)
