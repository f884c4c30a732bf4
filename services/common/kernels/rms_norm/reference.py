"""RMSNorm in torch (Zhang and Sennrich, 2019)."""

import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """Return `x / rms(x) * weight` over the last dimension."""
    return F.rms_norm(x, weight_D.shape, weight_D, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight_D: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the norm of `x + residual`, and that sum."""
    total = x + residual
    return F.rms_norm(total, weight_D.shape, weight_D, eps), total
