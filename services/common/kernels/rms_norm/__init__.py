"""Root-mean-square normalisation."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.rms_norm import reference

__all__ = ["rms_norm"]

rms_norm = Operator(reference.rms_norm)
