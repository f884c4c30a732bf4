"""Scatter of keys and values into their blocks."""

from torch import Tensor

from services.common.kernels.write_kv import reference


def write_kv(kv_2NSHD: Tensor, keys_THD: Tensor, values_THD: Tensor, slots_T: Tensor) -> None:
    """Store each row's key and value at its flat slot `block * S + offset`; rows may share only the pad block."""
    reference.write_kv(kv_2NSHD, keys_THD, values_THD, slots_T)


def write_layers(kv_L2NSHD: Tensor, rows_TL2HD: Tensor, slots_T: Tensor) -> None:
    """Store each row's keys and values of all layers at once."""
    reference.write_layers(kv_L2NSHD, rows_TL2HD, slots_T)
