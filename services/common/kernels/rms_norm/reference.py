"""RMSNorm in torch (Zhang and Sennrich, 2019)."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight_D: Tensor | None, eps: float) -> Tensor:
    """Return `x / rms(x) * weight` over the last dimension; few calls, since on a CPU the calls are what costs."""
    wide = x if x.dtype == torch.float64 else x.float()
    length: Tensor = torch.linalg.vector_norm(wide, 2, [-1], True)
    normed: Tensor = (wide * length.square_().mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_()).to(x.dtype)
    return normed if weight_D is None else normed.mul_(weight_D)


def add_rms_norm(x: Tensor, residual: Tensor, weight_D: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the norm of `x + residual`, and that sum."""
    total = x + residual
    return rms_norm(total, weight_D, eps), total
