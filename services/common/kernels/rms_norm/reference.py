"""RMSNorm in torch (Zhang and Sennrich, 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight_D: Tensor | None, eps: float) -> Tensor:
    """Return `x / rms(x) * weight` over the last dimension; few calls, since on a CPU the calls are what costs."""
    if x.dtype != torch.float32 and x.dtype != torch.float64:
        return F.rms_norm(x, [x.shape[-1]], weight_D, eps)
    length: Tensor = torch.linalg.vector_norm(x, 2, [-1], True)
    floor = torch.full([1], eps, dtype=x.dtype, device=x.device)
    normed = x * torch.addcmul(floor, length, length, value=1.0 / x.shape[-1]).rsqrt_()
    return normed if weight_D is None else normed.mul_(weight_D)


def add_rms_norm(x: Tensor, residual: Tensor, weight_D: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the norm of `x + residual`, and that sum."""
    total = x + residual
    return rms_norm(total, weight_D, eps), total
