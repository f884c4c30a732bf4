"""Weights of eight bits whose numbers are exact in sixteen, so that a product by them has the bits of a wide one.

A number is an integer of at most 127 times a power of two, one for each output and group of 128 inputs. It has seven
significant bits, and bfloat16 holds eight.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP, HALF, TILE = 128, 64, 16
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

    `words_NGTH` are tiles of 16 lines and a group, each in one piece of memory; the last may have lines of zeros. A
    word holds the numbers `j` of the two halves of a group, the first half's in its lower byte, each plus 128: both
    halves then lie in the registers as the matrix units take numbers of sixteen bits. `scales_GF` are the powers of
    two. `wide_FD` are the same numbers in `dtype`, kept where products of many rows need them.
    """

    words_NGTH: Tensor
    scales_GF: Tensor
    depth: int
    dtype: torch.dtype
    wide_FD: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and depth."""
        return len(self), self.depth

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.words_NGTH.device

    def __len__(self) -> int:
        """Outputs."""
        return self.scales_GF.shape[1]

    def lines(self, first: int, end: int) -> "Int8Weight":
        """The outputs from `first`, which begins a tile, to before `end`, in the same memory."""
        assert first % TILE == 0, "lines begin within a tile"
        words_NGTH = self.words_NGTH[first // TILE : -(-end // TILE)]
        wide_FD = None if self.wide_FD is None else self.wide_FD[first:end]
        return Int8Weight(words_NGTH, self.scales_GF[:, first:end], self.depth, self.dtype, wide_FD)

    def widened(self) -> Tensor:
        """The numbers [F, D] in `dtype`, exactly."""
        if self.wide_FD is not None:
            return self.wide_FD
        wide_FD = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for first in range(0, len(self), _LINES):
            wide_FD[first : first + _LINES] = _numbers(self.lines(first, first + _LINES))
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
    tiles = -(-outputs // TILE)
    words_NGTH = torch.empty((tiles, groups, TILE, HALF), dtype=torch.int16, device=weight_FD.device)
    scales_GF = torch.empty((groups, outputs), dtype=torch.float32, device=weight_FD.device)
    for first in range(0, outputs, _LINES):
        part, of_tiles = slice(first, first + _LINES), slice(first // TILE, (first + _LINES) // TILE)
        words_NGTH[of_tiles], scales_GF[:, part] = _packed(weight_FD[part])
    return Int8Weight(words_NGTH, scales_GF, depth, weight_FD.dtype)


def widened(weight: Weight) -> Tensor:
    """Return a weight's numbers as a matrix."""
    return weight.widened() if isinstance(weight, Int8Weight) else weight


def lines(weight: Weight, first: int, end: int) -> Weight:
    """Return the outputs of a weight from `first` to before `end`, in the same memory."""
    return weight.lines(first, end) if isinstance(weight, Int8Weight) else weight[first:end]


def operands(weight: Weight) -> tuple[Tensor, Tensor | None, tuple[int, int]]:
    """Return what a kernel reads: numbers, scales of eight bits, and strides of lines (or tiles) and groups."""
    if isinstance(weight, Int8Weight):
        return weight.words_NGTH, weight.scales_GF, (weight.words_NGTH.stride(0), weight.scales_GF.stride(0))
    assert weight.stride(1) == 1, "a kernel reads a weight along its inputs"
    return weight, None, (weight.stride(0), 0)


def _packed(weight_FD: Tensor) -> tuple[Tensor, Tensor]:
    """Return words [N, G, T, H] and scales [G, F] of some lines."""
    wide, (outputs, depth) = torch.promote_types(weight_FD.dtype, torch.float32), weight_FD.shape
    padded_FGX = F.pad(weight_FD.to(wide), (0, -depth % GROUP, 0, -outputs % TILE)).unflatten(1, (-1, GROUP))
    part_FG, exponent_FG = torch.frexp(padded_FGX.abs().amax(-1))
    # The largest number of a group becomes 64 to 127; one that would be rounded to 128 takes the next power.
    exponent_FG = exponent_FG - 7 + (part_FG >= (_MOST + 0.5) / 128).to(exponent_FG.dtype)
    # By their bits: a GPU's power function may miss a power of two by a little.
    scale_FG = ((exponent_FG.clamp_min(_LEAST_EXPONENT) + 127) << 23).view(torch.float32)
    whole_FGX = (padded_FGX / scale_FG[..., None]).round_().clamp_(-_MOST, _MOST)
    bytes_FGX = (whole_FGX + _BIAS).to(torch.uint8)
    pairs = torch.stack((bytes_FGX[..., :HALF], bytes_FGX[..., HALF:]), -1).contiguous()
    words_NTGH = pairs.view(torch.int16).squeeze(-1).unflatten(0, (-1, TILE))
    return words_NTGH.transpose(1, 2), scale_FG[:outputs].t()


def _numbers(part: Int8Weight) -> Tensor:
    words_FGH = part.words_NGTH.transpose(1, 2).flatten(0, 1)[: len(part)].contiguous()
    pairs_FGH2 = words_FGH.view(torch.uint8).unflatten(-1, (HALF, 2))
    bytes_FGX = torch.cat((pairs_FGH2[..., 0], pairs_FGH2[..., 1]), -1)
    wide = torch.promote_types(part.dtype, torch.float32)
    numbers_FGX = (bytes_FGX.to(wide) - _BIAS) * part.scales_GF.t()[..., None]
    return numbers_FGX.flatten(1)[:, : part.depth].to(part.dtype)
