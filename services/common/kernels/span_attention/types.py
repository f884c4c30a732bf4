"""What kernels in CUDA C++ are handed in, and what they ask of it."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

_LOG2_E = 1.4426950408889634


class Heads(NamedTuple):
    """What heads are made of: a product [T, F], and what `store_qkv` takes; keys and values go to `slots_T` of `kv`.

    Kernels take it field by field. `inverse_width` is that of the rows in front of the product.
    """

    mixed_TF: Tensor
    squares_T: Tensor | None
    bias_F: Tensor | None
    norm_HD: Tensor | None
    cos_T1D: Tensor
    sin_T1D: Tensor
    slots_T: Tensor
    kv_2NSHD: Tensor
    inverse_width: float
    eps: float
    offset: float

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The fields that are tensors, in the order in which a kernel takes them."""
        return self[:8]

    @property
    def numbers(self) -> tuple[float, ...]:
        """The fields that are numbers, which a kernel takes behind the tensors."""
        return self[8:]

    @property
    def places(self) -> int:
        """Slots of the paged memory."""
        return self.kv_2NSHD.shape[1] * self.kv_2NSHD.shape[2]

    @property
    def scale(self) -> float:
        """Of scores, whose exponentials are powers of two."""
        return float(self.kv_2NSHD.shape[4] ** -0.5 * _LOG2_E)

    def room(self) -> Tensor:
        """Return memory for the mixed rows [T, Hq * D]."""
        assert self.mixed_TF.is_contiguous(), "rows must be contiguous"
        kv_heads, size = self.kv_2NSHD.shape[3:]
        rows, lines = self.mixed_TF.shape
        return self.mixed_TF.new_empty((rows, lines - 2 * kv_heads * size))


def readable(*kinds: tuple[torch.dtype, Iterable[Tensor | None]]) -> bool:
    """Whether all tensors that are there lie in a row and have their type."""
    given = ((kind, x) for kind, tensors in kinds for x in tensors if x is not None)
    return all(x.dtype == kind and x.is_contiguous() for kind, x in given)
