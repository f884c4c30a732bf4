"""Cosines and sines of the rotary embedding, computed once in float64."""

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Rows of the tables; the sine's first half is negated, so that rotating is `x * cos + roll(x, D / 2) * sin`."""

    cos_T1D: Tensor
    sin_T1D: Tensor


class RotationTable:
    """The neox convention: dimension i turns together with i + D / 2, at angle position * theta^(-2i / D)."""

    def __init__(
        self, positions: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        exponents_D = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        angles_PD = torch.arange(positions, dtype=torch.float64)[:, None] * theta**-exponents_D
        cos_PD, sin_PD = angles_PD.cos(), angles_PD.sin()
        self._cos_PD = torch.cat((cos_PD, cos_PD), 1).to(device, dtype)
        self._sin_PD = torch.cat((-sin_PD, sin_PD), 1).to(device, dtype)

    def at(self, positions_T: Tensor) -> Rotation:
        """Return the rows of flat positions; positions past the table (pad rows) take its last row."""
        if positions_T.is_cuda:
            from services.common.kernels.rope.kernel import table_rows

            return Rotation(*table_rows(self._cos_PD, self._sin_PD, positions_T))
        rows_T = positions_T.clamp(max=self._cos_PD.shape[0] - 1)
        return Rotation(self._cos_PD.index_select(0, rows_T)[:, None], self._sin_PD.index_select(0, rows_T)[:, None])
