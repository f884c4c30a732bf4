"""Projection, bias, head norms, rotation and store, composed of their own operators."""

from torch import Tensor

from services.common.kernels.kv_codes.reference import store_codes
from services.common.kernels.linear import Normed
from services.common.kernels.linear.reference import divided, linear
from services.common.kernels.linear.weight import Weight
from services.common.kernels.rms_norm.reference import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope


def project_qkv(
    normed: Normed,
    qkv_FD: Weight,
    norm_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    slots_T: Tensor,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
    exponents_2NSH: Tensor | None = None,
    v_norm: bool = False,
) -> Tensor:
    """Return the rotated queries [T, Hq, D]; store the rotated keys and the values at the rows' flat slots.

    Args:
        normed: the rows, [T, F].
        qkv_FD: of queries, keys and values, (Hq + 2 Hkv) * D lines.
        norm_HD: weights of the head norms, one row per query and key head; None for a model without them.
        rotation: cosines and sines of the rows' positions.
        kv_2NSHD: K/V of one layer.
        slots_T: where each row goes, `block * S + offset`.
        eps: of the norms.
        bias_F: what the projection adds to each line; None for a model without it.
        offset: what the head norms add to their weights.
        exponents_2NSH: with them K/V are codes (`kv_codes`).
        v_norm: whether heads of values are normalised, without a weight.
    """
    mixed_TF = divided(linear(normed.rows_TD, qkv_FD), normed, eps)
    if v_norm:
        assert bias_F is None, "values have a bias or a norm"
        values_THD = mixed_TF[:, -kv_2NSHD.shape[3] * kv_2NSHD.shape[4] :].unflatten(1, kv_2NSHD.shape[3:])
        values_THD.copy_(rms_norm(values_THD, None, eps))
    return store_qkv(mixed_TF, norm_HD, rotation, kv_2NSHD, slots_T, eps, bias_F, offset, exponents_2NSH)


def store_qkv(
    mixed_TF: Tensor,
    weight_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    slots_T: Tensor,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
    exponents_2NSH: Tensor | None = None,
) -> Tensor:
    """Return the rotated queries; store the rotated keys and the values at the rows' flat slots."""
    if bias_F is not None:
        mixed_TF = mixed_TF + bias_F
    kv_heads, size = kv_2NSHD.shape[3:]
    mixed_THD = mixed_TF.view(len(mixed_TF), -1, size)
    turning = mixed_THD.shape[1] - kv_heads
    turned_THD = norm_rope(mixed_THD[:, :turning], weight_HD, rotation, eps, offset)
    queries, flat_2PHD = turning - kv_heads, kv_2NSHD.flatten(1, 2)
    if exponents_2NSH is not None:
        flat_2PH = exponents_2NSH.flatten(1, 2)
        store_codes(flat_2PHD[0], flat_2PH[0], slots_T, turned_THD[:, queries:])
        store_codes(flat_2PHD[1], flat_2PH[1], slots_T, mixed_THD[:, turning:])
        return turned_THD[:, :queries]
    flat_2PHD[0].index_copy_(0, slots_T, turned_THD[:, queries:])
    flat_2PHD[1].index_copy_(0, slots_T, mixed_THD[:, turning:])
    return turned_THD[:, :queries]
