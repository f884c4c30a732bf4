"""Matrix products in torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.linear.int8_weight import Weight, quantised_rows
from services.common.kernels.linear.normed import Normed
from services.common.kernels.rms_norm.reference import add_rms_norm
from services.common.kernels.swiglu.reference import swiglu


def linear(x_TD: Tensor, weight_FD: Weight, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T`; of rows in eight bits where the weight is."""
    if isinstance(weight_FD, Tensor):
        return F.linear(x_TD, weight_FD) if out_TF is None else torch.mm(x_TD, weight_FD.t(), out=out_TF)
    product_TF = product_of_whole(x_TD, weight_FD.whole_FD, weight_FD.scale_F)
    return product_TF if out_TF is None else out_TF.copy_(product_TF)


def product_of_whole(x_TD: Tensor, whole_FD: Tensor, scale_F: Tensor) -> Tensor:
    """Return rows, rounded to eight bits, times integers, scaled once in float32."""
    whole_TD, scale_T = quantised_rows(x_TD)
    # Exact in float64, as in the 32 bits of a GPU.
    sums_TF = whole_TD.double() @ whole_FD.double().t()
    return (sums_TF.float() * (scale_F * scale_T[:, None])).to(x_TD.dtype)


def divided(product_TF: Tensor, normed: Normed, eps: float) -> Tensor:
    """Return a product of a norm's rows, divided by their root mean square."""
    if normed.squares_T is None:
        return product_TF
    mean_T1 = normed.squares_T[:, None] * (2.0**-24 / normed.width)
    return (product_TF * (mean_T1 + eps).rsqrt()).to(product_TF.dtype)


def linear_gated(normed: Normed, weight_FD: Weight, eps: float) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    return swiglu(divided(linear(normed.rows_TD, weight_FD), normed, eps))


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
