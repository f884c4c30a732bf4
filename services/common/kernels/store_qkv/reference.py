"""Projection, head norms, rotation and store, composed of their own operators."""

from torch import Tensor

from services.common.kernels.linear import Normed
from services.common.kernels.linear.reference import linear_normed
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope


def project_qkv(
    normed: Normed, qkv_FD: Tensor, norm_HD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor, eps: float
) -> Tensor:
    """Return the rotated queries; store the rotated keys and the values at the rows' flat slots."""
    return store_qkv(linear_normed(normed, qkv_FD, eps), norm_HD, rotation, kv_2NSHD, slots_T, eps)


def store_qkv(
    mixed_TF: Tensor, weight_HD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor, eps: float
) -> Tensor:
    """Return the rotated queries; store the rotated keys and the values at the rows' flat slots."""
    turning, kv_heads = len(weight_HD), kv_2NSHD.shape[3]
    mixed_THD = mixed_TF.view(len(mixed_TF), turning + kv_heads, weight_HD.shape[1])
    turned_THD = norm_rope(mixed_THD[:, :turning], weight_HD, rotation, eps)
    queries, flat_2PHD = turning - kv_heads, kv_2NSHD.flatten(1, 2)
    flat_2PHD[0].index_copy_(0, slots_T, turned_THD[:, queries:])
    flat_2PHD[1].index_copy_(0, slots_T, mixed_THD[:, turning:])
    return turned_THD[:, :queries]
