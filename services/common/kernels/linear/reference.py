"""Matrix products in torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.linear.grouped.weight import GroupedWeight, product_of_groups
from services.common.kernels.linear.int8_weight import Int8Weight, product_of_packed
from services.common.kernels.linear.integers import adds_exactly, multiplies_packed, product_of_whole
from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.kernels.linear.weight import Weight
from services.common.kernels.normed import Normed
from services.common.kernels.rms_norm.reference import add_rms_norm
from services.common.kernels.swiglu.reference import geglu, swiglu


def linear(x_TD: Tensor, weight_FD: Weight, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T`; of rows in eight bits where the weight is."""
    if isinstance(weight_FD, PackedWeight):
        weight_FD = weight_FD.widened()
    if isinstance(weight_FD, Tensor):
        return F.linear(x_TD, weight_FD) if out_TF is None else torch.mm(x_TD, weight_FD.t(), out=out_TF)
    if isinstance(weight_FD, GroupedWeight):
        product_TF = product_of_groups(x_TD, weight_FD.codes_FD, weight_FD.scale_BG)
    else:
        product_TF = _of_eight_bits(x_TD, weight_FD)
    return product_TF if out_TF is None else out_TF.copy_(product_TF)


def _of_eight_bits(x_TD: Tensor, weight: Int8Weight) -> Tensor:
    if multiplies_packed(x_TD.device.type, weight.whole_FD.shape[1]):
        return product_of_packed(x_TD, weight.packed, weight.scale_F)
    return product_of_whole(x_TD, weight.whole_FD, weight.scale_F, adds_exactly(x_TD.device.type))


def divided(product_TF: Tensor, normed: Normed, eps: float) -> Tensor:
    """Return a product of a norm's rows, divided by their root mean square."""
    if normed.squares_T is None:
        return product_TF
    mean_T1 = normed.squares_T[:, None] * (2.0**-24 / normed.width)
    return (product_TF * (mean_T1 + eps).rsqrt()).to(product_TF.dtype)


def linear_gated(normed: Normed, weight_FD: Weight, eps: float, gelu: bool = False) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`, or GeGLU."""
    both_TF = divided(linear(normed.rows_TD, weight_FD), normed, eps)
    return geglu(both_TF) if gelu else swiglu(both_TF)


def linear_normed(normed: Normed, weight_FD: Tensor, eps: float) -> Tensor:
    """Return `norm @ weight.T`."""
    return divided(linear(normed.rows_TD, weight_FD), normed, eps)


def linear_gates(normed: Normed, weight_FD: Tensor, mixed_TF: Tensor, eps: float) -> Tensor:
    """Multiply rows by the sigmoid of `norm @ weight.T`, in place."""
    return mixed_TF.mul_(linear_normed(normed, weight_FD, eps).sigmoid())


def linear_added(
    x_TD: Tensor, weight_FD: Weight, stream_TF: Tensor, norm_F: Tensor, eps: float, offset: float = 0.0
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum."""
    normed_TF, total_TF = add_rms_norm(linear(x_TD, weight_FD), stream_TF, norm_F, eps, offset)
    return Normed(normed_TF), total_TF
