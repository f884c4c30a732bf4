"""Matrix products in torch."""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.linear.grouped.weight import GroupedWeight, product_of_groups
from services.common.kernels.linear.int8_weight import MOST, Int8Weight, packed_whole, quantised_rows
from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.kernels.linear.weight import Weight
from services.common.kernels.normed import Normed
from services.common.kernels.rms_norm.reference import add_rms_norm
from services.common.kernels.swiglu.reference import geglu, swiglu

_PROBED = (1, 64, 32), (7, 576, 96), (33, 1000, 48)
"""Rows, depths and widths of products whose sums are compared."""
_PACKED_PROBED = (1, 64), (5, 96), (16, 33)
"""Rows and widths of those by packed weights."""
_MIDDLE = 128
"""What FBGEMM adds to a row's integers, so that none is negative."""
_DEEPEST = (1 << 31) // ((MOST + _MIDDLE) * MOST)
"""Its sums of such rows have 32 bits."""


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
    if multiplies_packed(x_TD.device.type, weight.shape[1]):
        return product_of_packed(x_TD, weight.packed, weight.scale_F)
    return product_of_whole(x_TD, weight.whole_FD, weight.scale_F, adds_exactly(x_TD.device.type))


def product_of_packed(x_TD: Tensor, packed: Any, scale_F: Tensor) -> Tensor:
    """Return what `product_of_whole` does, by integers that are packed once: a product then reads them as they lie."""
    whole_TD, scale_T = quantised_rows(x_TD)
    sums_TF: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        whole_TD.float(), 1.0, _MIDDLE, packed
    )
    return sums_TF.mul_(scale_F * scale_T[:, None]).to(x_TD.dtype)


def product_of_whole(x_TD: Tensor, whole_FD: Tensor, scale_F: Tensor, in_integers: bool) -> Tensor:
    """Return rows, rounded to eight bits, times integers, scaled once in float32.

    Sums are exact, so both ways to them give the same bits: `in_integers` where the machine `adds_exactly`, or float64.
    """
    whole_TD, scale_T = quantised_rows(x_TD)
    if in_integers and whole_FD.shape[1] > 1:  # torch reads a depth of one by a wrong stride
        sums_TF = torch._int_mm(whole_TD, whole_FD.t()).float()
    else:
        sums_TF = (whole_TD.double() @ whole_FD.double().t()).float()
    return (sums_TF * (scale_F * scale_T[:, None])).to(x_TD.dtype)


@cache
def adds_exactly(device: str) -> bool:
    """Return whether the vendor's product of eight-bit integers is quick and exact here.

    Processors without VNNI add pairs of products in sixteen bits, which the largest numbers overflow, or run a plain
    loop.
    """
    if device != "cpu" or not torch.cpu._is_vnni_supported():
        return False
    generator = torch.Generator().manual_seed(1)
    for rows, depth, width in _PROBED:
        some_RD = torch.randint(-MOST, MOST + 1, (rows, depth), dtype=torch.int8, generator=generator)
        some_FD = torch.full((width, depth), MOST, dtype=torch.int8)
        some_RD[0] = -MOST
        if not torch.equal(torch._int_mm(some_RD, some_FD.t()).double(), some_RD.double() @ some_FD.double().t()):
            return False
    return True


@cache
def multiplies_packed(device: str, depth: int) -> bool:
    """Return whether FBGEMM is here and its products of whole numbers, so deep, are exact."""
    if depth > _DEEPEST or not adds_exactly(device):
        return False
    generator = torch.Generator().manual_seed(2)
    for rows, width in _PACKED_PROBED:
        some_RD = torch.randint(-MOST, MOST + 1, (rows, depth), dtype=torch.int8, generator=generator)
        some_FD = torch.randint(-MOST, MOST + 1, (width, depth), dtype=torch.int8, generator=generator)
        some_RD[0], some_FD[0], some_FD[-1] = MOST, MOST, -MOST
        ones_F = torch.ones(width)
        try:
            found_RF = product_of_packed(some_RD.float(), packed_whole(some_FD), ones_F)
        except (AttributeError, NotImplementedError, RuntimeError):
            return False
        if not torch.equal(found_RF, product_of_whole(some_RD.float(), some_FD, ones_F, in_integers=False)):
            return False
    return True


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
