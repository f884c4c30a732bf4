"""The gated unit between the two halves of a feed-forward layer."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.swiglu import reference

__all__ = ["swiglu"]

swiglu = Operator(reference.swiglu)
