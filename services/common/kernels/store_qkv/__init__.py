"""The step between a layer's projection and its attention: head norms, rotation, and the K/V store."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.rope import Rotation
from services.common.kernels.store_qkv import reference


def store_qkv(
    mixed_TF: Tensor, weight_HD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor, eps: float
) -> Tensor:
    """Return the rotated queries [T, Hq, D]; store the rotated keys and the values at the rows' flat slots.

    Args:
        mixed_TF: queries, keys and values as projected, [T, (Hq + 2 Hkv) * D].
        weight_HD: weights of the head norms, one row per query and key head.
        rotation: cosines and sines of the rows' positions.
        kv_2NSHD: K/V of one layer.
        slots_T: where each row goes, `block * S + offset`.
        eps: of the norms.
    """
    if on_kernel(mixed_TF):
        from services.common.kernels.store_qkv import kernel

        return kernel.store_qkv(mixed_TF, weight_HD, rotation, kv_2NSHD, slots_T, eps)
    return reference.store_qkv(mixed_TF, weight_HD, rotation, kv_2NSHD, slots_T, eps)
