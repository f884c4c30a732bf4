"""The gated unit between the two halves of a feed-forward layer."""

from torch import Tensor

from services.common.kernels.swiglu import reference


def swiglu(gate_up: Tensor) -> Tensor:
    """Return `silu(gate) * up` of a [..., 2 I] tensor that holds both, gate first."""
    return reference.swiglu(gate_up)
