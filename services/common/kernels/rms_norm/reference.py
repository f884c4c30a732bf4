"""RMSNorm in torch (Zhang and Sennrich, 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight_D: Tensor | None, eps: float, offset: float = 0.0) -> Tensor:
    """Return `x / rms(x) * (weight + offset)` over the last dimension; statistics in float32 or wider.

    Zero-centred norms store their weights less one, and their `offset` is 1. Adding the one to a stored weight would
    lose digits in a narrow type. It takes few calls here: on a CPU calls are the cost.
    """
    if x.dtype != torch.float32 and x.dtype != torch.float64:
        if weight_D is None or offset == 0.0:
            return F.rms_norm(x, [x.shape[-1]], weight_D, eps)
        return F.rms_norm(x.float(), [x.shape[-1]], weight_D.float() + offset, eps).to(x.dtype)
    length: Tensor = torch.linalg.vector_norm(x, 2, [-1], True)
    floor = torch.full([1], eps, dtype=x.dtype, device=x.device)
    normed = x * torch.addcmul(floor, length, length, value=1.0 / x.shape[-1]).rsqrt_()
    if weight_D is None:
        return normed
    return normed.mul_(weight_D if offset == 0.0 else weight_D + offset)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight_D: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the norm of `x + residual`, and that sum."""
    total = x + residual
    return rms_norm(total, weight_D, eps, offset), total
