"""SwiGLU and GeGLU in torch (Shazeer, 2020)."""

import torch.nn.functional as F
from torch import Tensor


def swiglu(gate_up_TF: Tensor) -> Tensor:
    """Return `silu(gate) * up` [T, I] of a [T, 2 I] tensor that holds both, gate first."""
    gate_TI, up_TI = gate_up_TF.chunk(2, -1)
    return F.silu(gate_TI).mul_(up_TI)


def geglu(gate_up_TF: Tensor) -> Tensor:
    """Return `gelu(gate) * up`, by tanh's approximation, of the same tensor."""
    gate_TI, up_TI = gate_up_TF.chunk(2, -1)
    return F.gelu(gate_TI, approximate="tanh").mul_(up_TI)
