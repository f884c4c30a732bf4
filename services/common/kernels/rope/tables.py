"""Cosines and sines of the rotary embedding, computed once in float64."""

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Rows of the tables; the sine's first half is negated, so that rotating is `x * cos + roll(x, D / 2) * sin`."""

    cos_T1D: Tensor
    sin_T1D: Tensor


class RotationTable:
    """The neox convention: dimension i turns together with i + D / 2, at angle position * theta^(-2i / D).

    On a GPU one half of each row is kept, H = D / 2: the kernel that looks rows up mirrors it.
    """

    def __init__(
        self, positions: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        exponents_H = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        angles_PH = torch.arange(positions, dtype=torch.float64)[:, None] * theta**-exponents_H
        cos_P, sin_P = angles_PH.cos(), angles_PH.sin()
        if torch.device(device).type != "cuda":
            cos_P, sin_P = torch.cat((cos_P, cos_P), 1), torch.cat((-sin_P, sin_P), 1)
        self._cos_P, self._sin_P = cos_P.to(device, dtype), sin_P.to(device, dtype)

    def at(self, positions_T: Tensor) -> Rotation:
        """Return the rows of flat positions; positions past the table (pad rows) take its last row."""
        if positions_T.is_cuda:
            from services.common.kernels.rope.kernel import table_rows

            return Rotation(*table_rows(self._cos_P, self._sin_P, positions_T))
        rows_T = positions_T.clamp(max=len(self._cos_P) - 1)
        return Rotation(self._cos_P.index_select(0, rows_T)[:, None], self._sin_P.index_select(0, rows_T)[:, None])
