"""SwiGLU in torch (Shazeer, 2020)."""

import torch.nn.functional as F
from torch import Tensor


def swiglu(gate_up_TF: Tensor) -> Tensor:
    """Return `silu(gate) * up` [T, I] of a [T, 2 I] tensor that holds both, gate first."""
    gate_TI, up_TI = gate_up_TF.chunk(2, -1)
    return F.silu(gate_TI).mul_(up_TI)
