"""The gated unit between the two halves of a feed-forward layer."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.swiglu import reference


def swiglu(gate_up_TF: Tensor) -> Tensor:
    """Return `silu(gate) * up` [T, I] of a [T, 2 I] tensor that holds both, gate first."""
    if on_kernel(gate_up_TF):
        from services.common.kernels.swiglu import kernel

        return kernel.swiglu(gate_up_TF)
    return reference.swiglu(gate_up_TF)
