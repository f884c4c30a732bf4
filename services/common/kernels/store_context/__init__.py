"""Makes draft context of the projection of a target's features: key norms, rotation, and the store."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.rope import Rotation
from services.common.kernels.store_context import reference


def store_context(
    mixed_TF: Tensor, norm_LHD: Tensor, rotation: Rotation, kv_L2NSHD: Tensor, slots_T: Tensor, eps: float
) -> None:
    """Store the rotated keys and the values of all layers at the rows' flat slots.

    Args:
        mixed_TF: of each layer the keys, then the values, L * 2 * H * D numbers.
        norm_LHD: weights of the key norms.
        rotation: cosines and sines of the rows' positions.
        kv_L2NSHD: draft context of all layers.
        slots_T: where each row goes, `block * S + offset`.
        eps: of the norms.
    """
    if on_kernel(mixed_TF):
        from services.common.kernels.store_context import kernel

        kernel.store_context(mixed_TF, norm_LHD, rotation, kv_L2NSHD, slots_T, eps)
    else:
        reference.store_context(mixed_TF, norm_LHD, rotation, kv_L2NSHD, slots_T, eps)
