"""Matrix products of the CPU path for TorchScript, with weights in the order that is read fastest."""

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.linear.grouped.weight import GroupedWeight, product_of_groups
from services.common.kernels.linear.int8_weight import Int8Weight, quantised_rows
from services.common.kernels.linear.integers import adds_exactly, multiplies_packed, product_of_whole
from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.kernels.linear.weight import Weight

_LARGEST_LOSS = 2.0**-25
"""Half a step of float16's smallest numbers: the most that storing a small weight in two bytes can change."""
_PROBED, _GROUP = 256, 3
"""Size of a made-up weight, and rows from which on FBGEMM adds in one order."""


class HalfProduct(nn.Module):
    """Weights kept as float16 in FBGEMM's order and widened in registers; products and sums are float32.

    A row has the same bits in any company: rows are multiplied in whole groups, of zeros if need be.
    """

    def __init__(self, weight_FD: Tensor) -> None:
        """Raises RuntimeError where this build or processor has no FBGEMM."""
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight_FD, None)
        self.group = _rows_of_a_group()

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T`, [T, F]."""
        rows = x_TD.shape[0]
        beyond = rows % self.group
        if beyond > 0:
            x_TD = torch.nn.functional.pad(x_TD, [0, 0, 0, self.group - beyond])
        product_TF: Tensor = torch.ops.quantized.linear_dynamic_fp16(x_TD, self.packed)
        return product_TF[:rows] if beyond > 0 else product_TF


@cache
def _rows_of_a_group() -> int:
    """Return how many rows FBGEMM has to be given at least: for one or two it adds in another order without AVX-512."""
    generator = torch.Generator().manual_seed(1)
    weight_FD, x_TD = (torch.randn(rows, _PROBED, generator=generator) for rows in (_PROBED, _GROUP))
    packed = torch.ops.quantized.linear_prepack_fp16(weight_FD, None)
    whole_TF, *parts = (torch.ops.quantized.linear_dynamic_fp16(x_TD[:rows], packed) for rows in (_GROUP, 1, 2))
    return 1 if all(torch.equal(part_TF, whole_TF[: len(part_TF)]) for part_TF in parts) else _GROUP


class WideProduct(nn.Module):
    """Weights as they are, with their outputs contiguous."""

    def __init__(self, weight_FD: Tensor) -> None:
        super().__init__()
        self.weight_DF = weight_FD.t().contiguous()

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T`, [T, F]."""
        return torch.mm(x_TD, self.weight_DF)


class WholeProduct(nn.Module):
    """Weights of eight bits, with rows rounded to eight bits."""

    in_integers: Final[bool]

    def __init__(self, weight: Int8Weight) -> None:
        super().__init__()
        self.whole_FD, self.scale_F = weight.whole_FD, weight.scale_F
        self.in_integers = adds_exactly(weight.device.type)

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T`, [T, F]."""
        return product_of_whole(x_TD, self.whole_FD, self.scale_F, self.in_integers)


class GroupedProduct(nn.Module):
    """Weights of e4m3 codes, with rows rounded to such codes."""

    def __init__(self, weight: GroupedWeight) -> None:
        super().__init__()
        self.codes_FD, self.scale_BG = weight.codes_FD, weight.scale_BG

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T`, [T, F]."""
        return product_of_groups(x_TD, self.codes_FD, self.scale_BG)


class PackedWholeProduct(nn.Module):
    """The same product by integers that are packed once, as `product_of_packed`."""

    def __init__(self, weight: Int8Weight) -> None:
        super().__init__()
        self.packed, self.scale_F = weight.packed, weight.scale_F

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T`, [T, F]."""
        whole_TD, scale_T = quantised_rows(x_TD)
        # 128 is added to whole numbers, so that none is negative.
        sums_TF: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            whole_TD.float(), 1.0, 128, self.packed
        )
        return sums_TF.mul_(self.scale_F * scale_T[:, None]).to(x_TD.dtype)


class BiasedProduct(nn.Module):
    """A product with a bias, added in the outputs' data type."""

    def __init__(self, product: nn.Module, bias_F: Tensor) -> None:
        super().__init__()
        self.product, self.bias_F = product, bias_F

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T + bias`, [T, F]."""
        product_TF: Tensor = self.product(x_TD)
        return product_TF.add_(self.bias_F)


def product(weight: Weight, bias_F: Tensor | None = None) -> nn.Module:
    """Return the quickest module that multiplies by a weight, and adds a bias, as its data type does.

    The bfloat16 numbers of a checkpoint fit into float16, except for the last bits of those below 2^-17. Such a weight
    takes half the time to read, and reading weights is most of the time of a round.
    """
    if bias_F is not None:
        return BiasedProduct(product(weight), bias_F)
    if isinstance(weight, Int8Weight):
        packs = multiplies_packed(weight.device.type, weight.shape[1])
        return PackedWholeProduct(weight) if packs else WholeProduct(weight)
    if isinstance(weight, GroupedWeight):
        return GroupedProduct(weight)
    if isinstance(weight, PackedWeight):
        weight = weight.widened()
    if weight.dtype == torch.float32 and _fits_half(weight):
        try:
            half = HalfProduct(weight)
            half(weight[:1])
        except (AttributeError, RuntimeError):
            return WideProduct(weight)
        return half
    return WideProduct(weight)


def _fits_half(weight_FD: Tensor) -> bool:
    loss_FD = (weight_FD.half().float() - weight_FD).abs_()
    return bool(loss_FD.max() <= _LARGEST_LOSS)
