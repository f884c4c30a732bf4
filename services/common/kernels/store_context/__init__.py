"""Makes draft context of the projection of a target's features: key norms, rotation, and the store."""

from torch import Tensor

from services.common.kernels.dispatch import Operator
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope


@Operator
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
    layers, heads, size = norm_LHD.shape
    mixed_TL2HD = mixed_TF.view(len(mixed_TF), layers, 2, heads, size)
    keys_THD = mixed_TL2HD[:, :, 0].flatten(1, 2)
    turned_THD = norm_rope(keys_THD, norm_LHD.flatten(0, 1), rotation, eps)
    flat_L2PHD = kv_L2NSHD.flatten(2, 3)
    flat_L2PHD[:, 0].index_copy_(1, slots_T, turned_THD.unflatten(1, [layers, heads]).transpose(0, 1))
    flat_L2PHD[:, 1].index_copy_(1, slots_T, mixed_TL2HD[:, :, 1].transpose(0, 1))
