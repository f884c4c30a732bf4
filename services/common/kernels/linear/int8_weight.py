"""Weights of eight bits whose numbers are exact in sixteen, so that a product by them has the bits of a wide one.

A number is an integer of at most 127 times a power of two, one for each output and group of 128 inputs. It has seven
significant bits, and bfloat16 holds eight.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP, HALF = 128, 64
INT8_BYTES = 1 + 4 / GROUP
"""Of a number with its part of a scale."""
_MOST, _BIAS = 127, 128
_LEAST_EXPONENT = -100
"""Of the power of two: far above the smallest that bfloat16 and float32 hold, far below what a weight needs."""
_LINES = 4096
"""Lines that are quantised at a time: what that takes beside them is five times as large."""


@dataclass
class Int8Weight:
    """A weight [F, D] as integers and powers of two.

    A word of `words_FH` holds the numbers `j` of the two halves of a group, the first half's in its lower byte, each
    plus 128: both halves then lie in the registers as the matrix units take numbers of sixteen bits. `scales_GF` are
    the powers of two. `wide_FD` are the same numbers in `dtype`, kept where products of many rows need them.
    """

    words_FH: Tensor
    scales_GF: Tensor
    depth: int
    dtype: torch.dtype
    wide_FD: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and depth."""
        return len(self.words_FH), self.depth

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.words_FH.device

    def __len__(self) -> int:
        """Outputs."""
        return len(self.words_FH)

    def lines(self, first: int, end: int) -> "Int8Weight":
        """The outputs from `first` to before `end`, in the same memory."""
        wide_FD = None if self.wide_FD is None else self.wide_FD[first:end]
        return Int8Weight(self.words_FH[first:end], self.scales_GF[:, first:end], self.depth, self.dtype, wide_FD)

    def widened(self) -> Tensor:
        """The numbers [F, D] in `dtype`, exactly."""
        if self.wide_FD is not None:
            return self.wide_FD
        wide_FD = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for first in range(0, len(self), _LINES):
            part = self.lines(first, first + _LINES)
            wide_FD[first : first + _LINES] = _numbers(part)
        return wide_FD

    def keep_wide(self) -> None:
        """Keep the wide numbers too, for products of many rows."""
        self.wide_FD = self.widened()


Weight = Tensor | Int8Weight
"""What rows are multiplied by."""


def quantised(weight_FD: Tensor) -> Int8Weight:
    """Return the nearest weight of eight bits."""
    outputs, depth = weight_FD.shape
    groups = -(-depth // GROUP)
    words_FH = torch.empty((outputs, groups * HALF), dtype=torch.int16, device=weight_FD.device)
    scales_GF = torch.empty((groups, outputs), dtype=torch.float32, device=weight_FD.device)
    for first in range(0, outputs, _LINES):
        part = slice(first, first + _LINES)
        words_FH[part], scales_GF[:, part] = _packed(weight_FD[part])
    return Int8Weight(words_FH, scales_GF, depth, weight_FD.dtype)


def widened(weight: Weight) -> Tensor:
    """Return a weight's numbers as a matrix."""
    return weight.widened() if isinstance(weight, Int8Weight) else weight


def lines(weight: Weight, first: int, end: int) -> Weight:
    """Return the outputs of a weight from `first` to before `end`, in the same memory."""
    return weight.lines(first, end) if isinstance(weight, Int8Weight) else weight[first:end]


def operands(weight: Weight) -> tuple[Tensor, Tensor | None, tuple[int, int]]:
    """Return what a kernel reads of a weight: its numbers, the scales of eight bits, and how far lines are apart."""
    if isinstance(weight, Int8Weight):
        return weight.words_FH, weight.scales_GF, (weight.words_FH.stride(0), weight.scales_GF.stride(0))
    assert weight.stride(1) == 1, "a kernel reads a weight along its inputs"
    return weight, None, (weight.stride(0), 0)


def _packed(weight_FD: Tensor) -> tuple[Tensor, Tensor]:
    """Return words [F, H] and scales [G, F] of some lines."""
    wide = torch.promote_types(weight_FD.dtype, torch.float32)
    padded_FGX = F.pad(weight_FD.to(wide), (0, -weight_FD.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    part_FG, exponent_FG = torch.frexp(padded_FGX.abs().amax(-1))
    # The largest number of a group becomes 64 to 127; one that would be rounded to 128 takes the next power.
    exponent_FG = exponent_FG - 7 + (part_FG >= (_MOST + 0.5) / 128).to(exponent_FG.dtype)
    scale_FG = torch.ldexp(torch.ones_like(part_FG), exponent_FG.clamp_min(_LEAST_EXPONENT))
    whole_FGX = (padded_FGX / scale_FG[..., None]).round_().clamp_(-_MOST, _MOST)
    bytes_FGX = (whole_FGX + _BIAS).to(torch.uint8)
    pairs = torch.stack((bytes_FGX[..., :HALF], bytes_FGX[..., HALF:]), -1).contiguous()
    return pairs.view(torch.int16).flatten(1), scale_FG.float().t()


def _numbers(part: Int8Weight) -> Tensor:
    pairs_FGX2 = part.words_FH.contiguous().view(torch.uint8).view(len(part), -1, HALF, 2)
    bytes_FGX = torch.cat((pairs_FGX2[..., 0], pairs_FGX2[..., 1]), -1)
    wide = torch.promote_types(part.dtype, torch.float32)
    numbers_FGX = (bytes_FGX.to(wide) - _BIAS) * part.scales_GF.t()[..., None]
    return numbers_FGX.flatten(1)[:, : part.depth].to(part.dtype)
