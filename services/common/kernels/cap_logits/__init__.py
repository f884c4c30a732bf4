"""Bounds of logits: by tanh, which keeps their order."""

from services.common.kernels.cap_logits import reference
from services.common.kernels.dispatch import Operator

__all__ = ["bounded"]

bounded = Operator(reference.bounded)
