"""SwiGLU in torch (Shazeer, 2020)."""

import torch.nn.functional as F
from torch import Tensor


def swiglu(gate_up: Tensor) -> Tensor:
    """Return `silu(gate) * up` of a [..., 2 I] tensor that holds both, gate first."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)
