"""Cosines and sines of the rotary embedding, computed once."""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.kernels.rope.frequencies import Frequencies


class Rotation(NamedTuple):
    """Rows of the tables; the sine's first half is negated, so that rotating is `x * cos + roll(x, D / 2) * sin`."""

    cos_T1D: Tensor
    sin_T1D: Tensor


class RotationTable:
    """The neox convention: dimension i turns together with i + D / 2, at angle position * frequency i.

    Angles are products in the frequencies' type, as in Hugging Face transformers. Rows [P, C] are whole, C = D, but on
    a GPU halves, C = H = D / 2: the kernel that looks them up mirrors them.
    """

    def __init__(
        self, positions: int, frequencies: Frequencies, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        turns_H = frequencies.turns_H
        angles_PH = torch.arange(positions, dtype=turns_H.dtype)[:, None] * turns_H
        cos_PC, sin_PC = angles_PH.cos() * frequencies.scale, angles_PH.sin() * frequencies.scale
        if torch.device(device).type != "cuda":
            cos_PC, sin_PC = torch.cat((cos_PC, cos_PC), 1), torch.cat((-sin_PC, sin_PC), 1)
        self._cos_PC, self._sin_PC = cos_PC.to(device, dtype), sin_PC.to(device, dtype)

    @property
    def positions(self) -> int:
        """Positions from 0 that have rows."""
        return len(self._cos_PC)

    def at(self, positions_T: Tensor) -> Rotation:
        """Return the rows of flat positions; positions past the table (pad rows) take its last row."""
        if positions_T.is_cuda:
            from services.common.kernels.rope.kernel import table_rows

            return Rotation(*table_rows(self._cos_PC, self._sin_PC, positions_T))
        rows_T = positions_T.clamp(max=len(self._cos_PC) - 1)
        return Rotation(self._cos_PC.index_select(0, rows_T)[:, None], self._sin_PC.index_select(0, rows_T)[:, None])
