"""Weights of e4m3 codes, and rows rounded to such codes before they are multiplied.

A row has a scale for each group of 128 inputs, so its neighbours change nothing. A weight has one for each group of
128 lines and as many inputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.linear.packed_weight import Codes
from services.common.kernels.linear.persistent.grouped import GROUP

CODE = torch.float8_e4m3fn
MOST = 448.0
"""The largest number that a code has."""


@dataclass(frozen=True)
class GroupedWeight:
    """A weight [F, D] as codes, and the scales of its blocks `scale_BG` [F / 128, D / 128], float32.

    Where blocks do not begin at each 128th line there is a scale for each line and group, [F, D / 128]. The last group
    may have fewer inputs. It stands for numbers of `dtype`.
    """

    codes_FD: Tensor
    scale_BG: Tensor
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
        return self.codes_FD.nbytes + self.scale_BG.nbytes

    def __len__(self) -> int:
        """Outputs."""
        return len(self.codes_FD)

    def to(self, device: torch.device) -> "GroupedWeight":
        """The same weight elsewhere."""
        return GroupedWeight(self.codes_FD.to(device), self.scale_BG.to(device), self.dtype)

    def lines(self, first: int, end: int) -> "GroupedWeight":
        """The outputs from `first` to before `end`, in the same memory.

        Both are multiples of 128 where lines share scales.

        Raises:
            ValueError: they are not.
        """
        if self._lines_of_scale == 1:
            return GroupedWeight(self.codes_FD[first:end], self.scale_BG[first:end], self.dtype)
        if first % GROUP or end % GROUP:
            raise ValueError(f"lines {first} to {end} do not begin and end where scales do")
        return GroupedWeight(self.codes_FD[first:end], self.scale_BG[first // GROUP : end // GROUP], self.dtype)

    def each(self, change: Callable[[Tensor], Tensor]) -> "GroupedWeight":
        """The weight with its lines changed: `change` gets the codes, and then the scales of each line.

        Raises:
            ValueError: lines that change places have other scales.
        """
        codes_FD = change(self.codes_FD.view(torch.uint8)).view(CODE)
        scale_FG = change(self._scale_FG)
        scale_BG = scale_FG if self._lines_of_scale == 1 else _of_blocks(scale_FG)
        if scale_BG is None:
            raise ValueError("lines of different scales change places")
        return GroupedWeight(codes_FD, scale_BG, self.dtype)

    def joined(self, others: Sequence["GroupedWeight"]) -> "GroupedWeight":
        """The lines of this weight and of others."""
        parts = (self, *others)
        codes_FD = torch.cat([one.codes_FD.view(torch.uint8) for one in parts]).view(CODE)
        shared = all(one._lines_of_scale == GROUP for one in parts)
        scale_BG = torch.cat([one.scale_BG if shared else one._scale_FG for one in parts])
        return GroupedWeight(codes_FD, scale_BG, self.dtype)

    def widened(self) -> Tensor:
        """The numbers [F, D]: codes times scales in float32, rounded to bfloat16 once, as `dtype`."""
        scale_FD = self._scale_FG.repeat_interleave(GROUP, 1)[:, : self.shape[1]]
        return (self.codes_FD.float() * scale_FD).bfloat16().to(self.dtype)

    @property
    def whole(self) -> bool:
        """Whether blocks begin at each 128th line and all have 128 inputs, as kernels take them."""
        return self._lines_of_scale == GROUP and self.shape[1] % GROUP == 0

    @property
    def _lines_of_scale(self) -> int:
        return len(self.codes_FD) // len(self.scale_BG)

    @property
    def _scale_FG(self) -> Tensor:
        return self.scale_BG.repeat_interleave(self._lines_of_scale, 0)


def grouped(codes: Codes, dtype: torch.dtype) -> GroupedWeight | None:
    """Return a weight of codes with scales; None where these are not of blocks of 128 lines and inputs.

    The last blocks may be cut.
    """
    (outputs, depth), scale_FG = codes.codes_FD.shape, codes.scale_FG
    groups = -(-depth // GROUP)
    if codes.zero_FG is not None or scale_FG.shape[1] not in (1, groups):
        return None
    scale_FG = scale_FG.expand(outputs, groups)
    firsts_F = torch.arange(outputs, device=scale_FG.device) // GROUP * GROUP
    if not torch.equal(scale_FG, scale_FG[firsts_F]):
        return None
    scale_BG = scale_FG if outputs % GROUP else scale_FG[::GROUP]
    return GroupedWeight(codes.codes_FD, scale_BG.float().contiguous(), dtype)


def rounded(weight_FD: Tensor) -> GroupedWeight | None:
    """Return the nearest such weight; None where its sizes are no multiples of 128."""
    outputs, depth = weight_FD.shape
    if outputs % GROUP or depth % GROUP:
        return None
    blocks = weight_FD.view(outputs // GROUP, GROUP, depth // GROUP, GROUP).float()
    scale = blocks.abs().amax((1, 3), keepdim=True) / MOST
    codes = (blocks / scale.clamp(min=torch.finfo(torch.float32).tiny)).clamp(-MOST, MOST)
    scale_BG = scale.view(outputs // GROUP, depth // GROUP)
    return GroupedWeight(codes.to(CODE).view(outputs, depth), scale_BG, weight_FD.dtype)


def rounded_rows(rows_TD: Tensor, group: int = GROUP, most: float = MOST) -> tuple[Tensor, Tensor]:
    """Return rows as codes [T, D], and the scales of their groups of 128 [T, D / 128], float32.

    The largest number of a group becomes 448, `most`. A group of zeros has the scale 0. The last may be shorter.
    """
    depth = rows_TD.shape[-1]
    wide_TD = rows_TD.float()
    if depth % group:
        wide_TD = torch.constant_pad_nd(wide_TD, [0, group - depth % group])
    wide_TGD = wide_TD.unflatten(-1, [-1, group])
    top_TG = wide_TGD.abs().amax(-1)
    # Divided by tensors: torch multiplies by the inverse of a number.
    most_TG = torch.full_like(top_TG, most)
    factor_TG = torch.where(top_TG > 0, most_TG / top_TG, torch.zeros_like(top_TG))
    codes_TD = (wide_TGD * factor_TG[..., None]).to(torch.float8_e4m3fn).flatten(-2)
    return codes_TD[..., :depth], top_TG / most_TG


def product_of_groups(x_TD: Tensor, codes_FD: Tensor, scale_BG: Tensor, group: int = GROUP) -> Tensor:
    """Return rows, rounded to codes, times codes, in the rows' type; scales are of blocks of lines, or of lines.

    A group's sum is exact; each is rounded to float32, scaled and added in order. On a GPU the tensor cores drop the
    last bits of a group's sum.
    """
    codes_TD, scale_TG = rounded_rows(x_TD)
    scale_FG = scale_BG.repeat_interleave(codes_FD.shape[0] // scale_BG.shape[0], 0)
    total_TF = torch.zeros((x_TD.shape[0], codes_FD.shape[0]), dtype=torch.float32, device=x_TD.device)
    for number in range(scale_BG.shape[1]):
        first, end = number * group, (number + 1) * group
        part_TF = codes_TD[:, first:end].double() @ codes_FD[:, first:end].double().t()
        total_TF += part_TF.float() * (scale_TG[:, number, None] * scale_FG[:, number])
    return total_TF.to(x_TD.dtype)


def _of_blocks(scale_FG: Tensor) -> Tensor | None:
    """Return one scale for each 128 lines; None where these have several."""
    blocks = scale_FG.unflatten(0, (-1, GROUP))
    return blocks[:, 0].contiguous() if torch.equal(blocks, blocks[:, :1].expand_as(blocks)) else None
