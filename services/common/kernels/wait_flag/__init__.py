"""Waits, at the head of a captured step, for a flag that another process's stream writes."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.wait_flag import reference
from services.common.kernels.wait_flag.reference import reached

__all__ = ["reached", "wait_flag"]

wait_flag = Operator(reference.wait_flag)
