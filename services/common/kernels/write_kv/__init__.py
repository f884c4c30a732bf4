"""Scatter of keys and values into their blocks."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.write_kv import reference


def write_layers(kv_L2NSHD: Tensor, rows_TL2HD: Tensor, slots_T: Tensor) -> None:
    """Store each row's keys and values of all layers at once."""
    if on_kernel(kv_L2NSHD):
        from services.common.kernels.write_kv import kernel

        kernel.write_layers(kv_L2NSHD, rows_TL2HD, slots_T)
    else:
        reference.write_layers(kv_L2NSHD, rows_TL2HD, slots_T)
