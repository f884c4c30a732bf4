"""Weights in eight bits (e4m3) with scales, as their file has them, that mean numbers of bfloat16.

Kernels widen codes in registers (`packed/`) or whole weights into memory; both give the numbers that `widened` returns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

SUB = 128
"""Inputs whose codes lie in an order of their own, and that share a scale of a line where it has more than one."""
_MOST_SHARED = 128
"""Lines that are looked at for a common scale."""
_LARGEST = 2.0**7
"""Scales are below it: kernels multiply them by 2^120."""
_BLOCK = 128
_MOST_E4M3 = 448.0
_AT_ONCE = 2048


@dataclass(frozen=True)
class PackedWeight:
    """A weight [F, D] of numbers of `dtype`: codes in the order in which lanes take them, and their scales, float32.

    A row of `scale_GL` has a scale for each `1 << shift` lines; there is one for each 128 inputs, or one for all. With
    `short` bfloat16 holds all scales.
    """

    codes_FD: Tensor
    scale_GL: Tensor
    shift: int
    short: bool
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and depth."""
        outputs, depth = self.codes_FD.shape
        return outputs, depth

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.codes_FD.device

    @property
    def nbytes(self) -> int:
        """Of codes and scales."""
        return self.codes_FD.nbytes + self.scale_GL.nbytes

    def __len__(self) -> int:
        """Outputs."""
        return len(self.codes_FD)

    def to(self, device: torch.device) -> "PackedWeight":
        """The same weight elsewhere."""
        parts = self.codes_FD.to(device), self.scale_GL.to(device)
        return PackedWeight(*parts, self.shift, self.short, self.dtype)

    def each(self, change: Callable[[Tensor], Tensor]) -> "PackedWeight":
        """The weight with its lines changed: `change` gets the codes, and then the scales of each line."""
        return _of_lines(change(self.codes_FD), change(self._scale_FG()), self.dtype)

    def joined(self, others: Sequence["PackedWeight"]) -> "PackedWeight":
        """The lines of this weight and of others; of scales for all inputs each 128 get a copy where some differ."""
        parts, scales = [self, *others], [one._scale_FG() for one in (self, *others)]
        groups = max(scale.shape[1] for scale in scales)
        scale_FG = torch.cat([scale.expand(len(scale), groups) for scale in scales])
        return _of_lines(torch.cat([one.codes_FD for one in parts]), scale_FG, self.dtype)

    def widened(self) -> Tensor:
        """The numbers [F, D]: codes times scales in float32, rounded once to bfloat16, as `dtype`."""
        outputs, depth = self.shape
        codes_FD = self.codes_FD.view(outputs, -1, SUB)[..., _place().to(self.device)].view(torch.float8_e4m3fn)
        scale_FG1, parts = self._scale_FG()[..., None], []
        for first in range(0, outputs, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            parts.append((codes_FD[part].float() * scale_FG1[part]).bfloat16().view(-1, depth))
        return torch.cat(parts).to(self.dtype)

    def _scale_FG(self) -> Tensor:
        return self.scale_GL.repeat_interleave(1 << self.shift, 1).t()


def packed(codes_FD: Tensor, scale_FG: Tensor, dtype: torch.dtype) -> PackedWeight | None:
    """Return e4m3 codes with a scale for each line and 128 inputs, or one a line, as kernels take them.

    None where they do not: sizes are odd, or a scale is too large.
    """
    outputs, depth = codes_FD.shape
    takes = outputs % 16 == 0 and depth % SUB == 0 and scale_FG.shape[1] in (1, depth // SUB)
    if not takes or not bool((scale_FG.abs() < _LARGEST).all()):
        return None
    dealt_FD = codes_FD.view(torch.uint8).view(outputs, -1, SUB)[..., _order().to(codes_FD.device)].view(outputs, depth)
    return _of_lines(dealt_FD, scale_FG.expand(outputs, -1), dtype)


def rounded_to_eight(weight_FD: Tensor) -> PackedWeight | None:
    """Return the nearest weight in e4m3 with bfloat16 scales of blocks of 128 lines and inputs; None as `packed`."""
    outputs, depth = weight_FD.shape
    if outputs % _BLOCK or depth % _BLOCK:
        return None
    blocks = weight_FD.view(outputs // _BLOCK, _BLOCK, depth // _BLOCK, _BLOCK).float()
    scale = (blocks.abs().amax((1, 3), keepdim=True) / _MOST_E4M3).bfloat16().float()
    codes = (blocks / scale.clamp(min=torch.finfo(torch.float32).tiny)).clamp(-_MOST_E4M3, _MOST_E4M3)
    codes_FD = codes.to(torch.float8_e4m3fn).view(outputs, depth)
    return packed(codes_FD, scale.view(outputs // _BLOCK, -1).repeat_interleave(_BLOCK, 0), weight_FD.dtype)


def _of_lines(codes_FD: Tensor, scale_FG: Tensor, dtype: torch.dtype) -> PackedWeight:
    """Return a weight of codes in the order of lanes, with as few scales as say the same."""
    groups = scale_FG.shape[1]
    if groups > 1 and torch.equal(scale_FG, scale_FG[:, :1].expand(-1, groups)):
        scale_FG = scale_FG[:, :1]
    shift = _shared(scale_FG)
    short = torch.equal(scale_FG.bfloat16().float(), scale_FG)
    return PackedWeight(codes_FD, scale_FG[:: 1 << shift].t().contiguous(), shift, short, dtype)


def _shared(scale_FG: Tensor) -> int:
    """Return how often lines may be halved and still have one scale a part of neighbours."""
    size, shift = _MOST_SHARED, _MOST_SHARED.bit_length() - 1
    while size > 1:
        if len(scale_FG) % size == 0:
            parts = scale_FG.reshape(-1, size, scale_FG.shape[1])
            if torch.equal(parts, parts[:, :1].expand_as(parts)):
                return shift
        size, shift = size // 2, shift - 1
    return 0


@cache
def _order() -> Tensor:
    """Return the input of each code of 128.

    Lane c of four reads sixteen codes at a time, of each half, and four of them for an instruction of sixteen inputs:
    two of the upper half and two of the lower one in turn, from 2c on. So the upper bytes of half words come first.
    """
    at = torch.arange(SUB)
    lane, half, part, byte = at // 32, at // 16 % 2, at // 4 % 4, at % 4
    return 64 * half + 16 * part + 2 * lane + byte // 2 + torch.where(byte % 2 == 0, 8, 0)


@cache
def _place() -> Tensor:
    """Return where the code of each input of 128 lies."""
    return _order().argsort()
