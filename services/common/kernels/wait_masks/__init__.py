"""Waits, between the head and accept of a captured step, for masks that the host makes meanwhile."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.wait_masks import reference

__all__ = ["wait_masks"]

wait_masks = Operator(reference.wait_masks)
