"""Matrix products of the CPU path for TorchScript, with weights in the order that is read fastest."""

import torch
from torch import Tensor, nn

from services.common.kernels.linear.int8_weight import Weight, widened

_LARGEST_LOSS = 2.0**-25
"""Half a step of float16's smallest numbers: the most that storing a small weight in two bytes can change."""


class HalfProduct(nn.Module):
    """Weights kept as float16 in FBGEMM's order and widened in registers; products and sums are float32."""

    def __init__(self, weight_FD: Tensor) -> None:
        """Raises RuntimeError where this build or processor has no FBGEMM."""
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight_FD, None)

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T`, [T, F]."""
        product_TF: Tensor = torch.ops.quantized.linear_dynamic_fp16(x_TD, self.packed)
        return product_TF


class WideProduct(nn.Module):
    """Weights as they are, with their outputs contiguous."""

    def __init__(self, weight_FD: Tensor) -> None:
        super().__init__()
        self.weight_DF = weight_FD.t().contiguous()

    def forward(self, x_TD: Tensor) -> Tensor:
        """Return `x @ weight.T`, [T, F]."""
        return torch.mm(x_TD, self.weight_DF)


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
    weight_FD = widened(weight)
    if weight_FD.dtype == torch.float32 and _fits_half(weight_FD):
        try:
            half = HalfProduct(weight_FD)
            half(weight_FD[:1])
        except (AttributeError, RuntimeError):
            return WideProduct(weight_FD)
        return half
    return WideProduct(weight_FD)


def _fits_half(weight_FD: Tensor) -> bool:
    loss_FD = (weight_FD.half().float() - weight_FD).abs_()
    return bool(loss_FD.max() <= _LARGEST_LOSS)
