"""Weights of eight bits, and rows rounded to eight bits before they are multiplied: integers add up exactly.

A product is the same whatever computes it and in whatever order. A row has a scale of its own, so its neighbours change
nothing.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

MOST = 127
"""The largest whole number."""
SCALE_BYTES = 4
"""Of a line's scale."""
_LINES = 4096
"""Lines that are quantised at a time: what that takes beside them is eight times as large."""


@dataclass(frozen=True)
class Int8Weight:
    """A weight [F, D] as integers `whole_FD` and a scale for each line, float32, of numbers that were `dtype`."""

    whole_FD: Tensor
    scale_F: Tensor
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and depth."""
        outputs, depth = self.whole_FD.shape
        return outputs, depth

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.whole_FD.device

    def __len__(self) -> int:
        """Outputs."""
        return len(self.whole_FD)

    @cached_property
    def packed(self) -> Any:
        """The integers in FBGEMM's order, made once; on a CPU whose torch has it."""
        return packed_whole(self.whole_FD)

    def lines(self, first: int, end: int) -> "Int8Weight":
        """The outputs from `first` to before `end`, in the same memory."""
        return Int8Weight(self.whole_FD[first:end], self.scale_F[first:end], self.dtype)

    @property
    def nbytes(self) -> int:
        """Of integers and scales."""
        return self.whole_FD.nbytes + self.scale_F.nbytes

    def to(self, device: torch.device) -> "Int8Weight":
        """The same weight elsewhere."""
        return self.each(lambda part: part.to(device))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Int8Weight":
        """The weight with its lines changed: `change` gets the integers, and then the scales."""
        return Int8Weight(change(self.whole_FD), change(self.scale_F), self.dtype)

    def joined(self, others: Sequence["Int8Weight"]) -> "Int8Weight":
        """The lines of this weight and of others."""
        parts = (self, *others)
        whole_FD, scale_F = (
            torch.cat(each) for each in ([one.whole_FD for one in parts], [one.scale_F for one in parts])
        )
        return Int8Weight(whole_FD, scale_F, self.dtype)

    def widened(self) -> Tensor:
        """The numbers [F, D], rounded to `dtype`."""
        return (self.whole_FD * self.scale_F[:, None]).to(self.dtype)


def quantised(weight_FD: Tensor) -> Int8Weight:
    """Return the nearest weight of eight bits."""
    whole_FD = torch.empty(weight_FD.shape, dtype=torch.int8, device=weight_FD.device)
    scale_F = torch.empty(len(weight_FD), dtype=torch.float32, device=weight_FD.device)
    for first in range(0, len(weight_FD), _LINES):
        part = slice(first, first + _LINES)
        whole_FD[part], scale_F[part] = quantised_rows(weight_FD[part])
    return Int8Weight(whole_FD, scale_F, weight_FD.dtype)


def packed_whole(whole_FD: Tensor) -> Any:
    """Return integers [F, D], int8, as FBGEMM multiplies by them.

    Raises:
        AttributeError, RuntimeError: this build or processor has no FBGEMM.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch will give such tensors up some day, FBGEMM takes no others
        as_they_are = torch._make_per_tensor_quantized_tensor(whole_FD, 1.0, 0)
    return torch.ops.quantized.linear_prepack(as_they_are, None)


def quantised_rows(rows_TD: Tensor, most: int = MOST) -> tuple[Tensor, Tensor]:
    """Return rows as integers [T, D], int8, of at most `most`, and the scale of each [T], float32.

    The largest number of a row becomes `most`; numbers halfway go to the even one. A row of zeros has the scale 0.
    """
    wide_TD = rows_TD.float()
    top_T = wide_TD.abs().amax(-1)
    # Divided by tensors: torch multiplies by the inverse of a number.
    most_T = torch.full_like(top_T, most)
    factor_T = torch.where(top_T > 0, most_T / top_T, torch.zeros_like(top_T))
    return (wide_TD * factor_T[:, None]).round_().to(torch.int8), top_T / most_T


MIDDLE = 128
"""What FBGEMM adds to a row's integers, so that none is negative."""


def product_of_packed(x_TD: Tensor, packed: Any, scale_F: Tensor) -> Tensor:
    """Return what `product_of_whole` does, by integers that are packed once: a product then reads them as they lie."""
    whole_TD, scale_T = quantised_rows(x_TD)
    sums_TF: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        whole_TD.float(), 1.0, MIDDLE, packed
    )
    return sums_TF.mul_(scale_F * scale_T[:, None]).to(x_TD.dtype)
