"""The steps between a layer's norm and its attention: projection, head norms, rotation, and the K/V store."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import Normed
from services.common.kernels.linear.weight import Weight
from services.common.kernels.rope import Rotation
from services.common.kernels.store_qkv import reference


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
    if on_kernel(normed.rows_TD):
        from services.common.kernels.store_qkv import kernel

        project = kernel.project_qkv
    else:
        project = reference.project_qkv
    return project(normed, qkv_FD, norm_HD, rotation, kv_2NSHD, slots_T, eps, bias_F, offset, exponents_2NSH, v_norm)
