"""Copies what a drafter reads of every slot to the tensors that it maps."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.publish_slots import reference
from services.common.kernels.publish_slots.reference import Mapped

__all__ = ["Mapped", "publish_slots"]


def publish_slots(rows_B: Tensor, length_S: Tensor, anchor_S: Tensor, mapped: Mapped) -> None:
    """Copy a round's rows, and lengths and anchors of all slots; the history's length includes the anchor."""
    if on_kernel(length_S):
        from services.common.kernels.publish_slots import kernel

        kernel.publish_slots(rows_B, length_S, anchor_S, mapped)
    else:
        reference.publish_slots(rows_B, length_S, anchor_S, mapped)
