"""Experts whose weights are codes of e4m3: their scales, and what their numbers are."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.linear.packed_weight import GROUP, LARGEST, Codes, numbers, shared_lines

_RAISED = 2.0**120
"""What scales are multiplied by: codes are read as numbers of bfloat16 that are so much smaller."""


@dataclass(frozen=True)
class ExpertScales:
    """Scales of a product of all experts, raised, as words [E, G, L] of int32, for each `1 << shift` lines.

    There is one of a line for each 128 inputs, or one for all. A word is a number of float32, or where all are `short`
    one of bfloat16, twice.
    """

    table_EGL: Tensor
    shift: int
    short: bool

    @property
    def strides(self) -> tuple[int, int, int]:
        """How far the next expert's scales lie, and those of the next group; and how many lines share one, by twos."""
        next_group = self.table_EGL.stride(1) if self.table_EGL.shape[1] > 1 else 0
        return self.table_EGL.stride(0), next_group, self.shift

    @staticmethod
    def of(scales_FG: Sequence[Tensor], device: torch.device) -> "ExpertScales":
        """Return the scales of experts by their numbers, as few as say the same."""
        groups = max(scale_FG.shape[1] for scale_FG in scales_FG)
        scale_EFG = torch.stack([scale_FG.expand(-1, groups) for scale_FG in scales_FG])
        lines = scale_EFG.shape[1]
        shift = min(shared_lines(scale_EFG.flatten(0, 1)), (lines & -lines).bit_length() - 1)
        scale_EGL = scale_EFG[:, :: 1 << shift].transpose(1, 2).contiguous() * _RAISED
        short = torch.equal(scale_EGL.bfloat16().float(), scale_EGL)
        table_EGL = scale_EGL.view(torch.int32)
        if short:
            table_EGL = table_EGL | (table_EGL >> 16 & 0xFFFF)
        return ExpertScales(table_EGL.to(device), shift, short)

    def widened(self, codes_EFB: Tensor) -> Tensor:
        """Return the numbers [E, F, D], bfloat16: codes times scales in float32, rounded once."""
        return torch.stack([self._numbers(expert, codes_FB) for expert, codes_FB in enumerate(codes_EFB)])

    def _numbers(self, expert: int, codes_FB: Tensor) -> Tensor:
        words_GL = self.table_EGL[expert]
        scale_GL = (words_GL & -0x10000 if self.short else words_GL).view(torch.float32) / _RAISED
        scale_FG1 = scale_GL.repeat_interleave(1 << self.shift, 1).t()[..., None]
        wide_FGD = numbers(codes_FB).view(len(codes_FB), scale_FG1.shape[1], -1)
        return (wide_FGD * scale_FG1).bfloat16().view(codes_FB.shape)


def are_taken(codes: Codes) -> bool:
    """Whether kernels of experts take a weight: it is of e4m3, and its groups are of 128 inputs or all of a line."""
    depth = codes.codes_FD.shape[1]
    if codes.zero_FG is not None or depth % GROUP or codes.scale_FG.shape[1] not in (1, depth // GROUP):
        return False
    return bool((codes.scale_FG.abs() < LARGEST).all())
