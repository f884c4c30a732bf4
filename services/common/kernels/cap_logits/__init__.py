"""Bounds of logits: by tanh, which keeps their order."""

import torch
from torch import Tensor

from services.common.kernels.dispatch import Operator


@Operator
def bounded(logits_TV: Tensor, cap: float, room_TV: Tensor | None = None) -> Tensor:
    """Return `cap * tanh(logits / cap)` in float32 or wider, in `room_TV` where that is given."""
    wide = torch.float64 if logits_TV.dtype == torch.float64 else torch.float32
    bounded_TV = (logits_TV.to(wide) / cap).tanh() * cap
    return bounded_TV if room_TV is None else room_TV.copy_(bounded_TV)
