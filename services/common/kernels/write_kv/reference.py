"""Block-wise K/V stores in torch."""

from torch import Tensor


def write_kv(kv_2NSHD: Tensor, keys_THD: Tensor, values_THD: Tensor, slots_T: Tensor) -> None:
    """Store each row's key and value at its flat slot."""
    flat_2PHD = kv_2NSHD.flatten(1, 2)
    flat_2PHD[0].index_copy_(0, slots_T, keys_THD)
    flat_2PHD[1].index_copy_(0, slots_T, values_THD)


def write_layers(kv_L2NSHD: Tensor, rows_TL2HD: Tensor, slots_T: Tensor) -> None:
    """Store each row's keys and values of all layers at once."""
    kv_L2NSHD.flatten(2, 3).index_copy_(2, slots_T, rows_TL2HD.permute(1, 2, 0, 3, 4))
