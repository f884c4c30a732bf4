"""Experts whose weights are codes of e4m3: their scales, and what their numbers are."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.linear.packed_weight import GROUP, Codes, shared_lines


@dataclass(frozen=True)
class ExpertScales:
    """Scales of a product of all experts, float32 [E, G, L], for each `1 << shift` lines.

    There is one of a line for each 128 inputs, or one for all.
    """

    scale_EGL: Tensor
    shift: int

    @staticmethod
    def of(scales_FG: Sequence[Tensor], device: torch.device) -> "ExpertScales":
        """Return the scales of experts by their numbers, as few as say the same."""
        groups = max(scale_FG.shape[1] for scale_FG in scales_FG)
        scale_EFG = torch.stack([scale_FG.expand(-1, groups) for scale_FG in scales_FG])
        lines = scale_EFG.shape[1]
        shift = min(shared_lines(scale_EFG.flatten(0, 1)), (lines & -lines).bit_length() - 1)
        return ExpertScales(scale_EFG[:, :: 1 << shift].transpose(1, 2).contiguous().to(device), shift)

    def widened(self, codes_EFD: Tensor) -> Tensor:
        """Return the numbers [E, F, D], bfloat16: codes times scales in float32, rounded once."""
        return torch.stack([self._numbers(expert, codes_FD) for expert, codes_FD in enumerate(codes_EFD)])

    def _numbers(self, expert: int, codes_FD: Tensor) -> Tensor:
        scale_FG1 = self.scale_EGL[expert].repeat_interleave(1 << self.shift, 1).t()[..., None]
        wide_FGD = codes_FD.view(torch.float8_e4m3fn).float().view(len(codes_FD), scale_FG1.shape[1], -1)
        return (wide_FGD * scale_FG1).bfloat16().view(codes_FD.shape)


def are_taken(codes: Codes) -> bool:
    """Whether kernels of experts take a weight: it is of e4m3, and its groups are of 128 inputs or all of a line."""
    depth = codes.codes_FD.shape[1]
    return codes.zero_FG is None and depth % GROUP == 0 and codes.scale_FG.shape[1] in (1, depth // GROUP)
