"""What the products in CUDA C++ share: the ring of stages, and the arithmetic that ends a product."""

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from services.common.kernels.normed import Normed


class Kind(IntEnum):
    """What follows a product: its norm alone, SwiGLU of its halves, the sum with a stream, or that it gates rows."""

    PLAIN = 0
    GATED = 1
    ADDED = 2
    GATES = 3


class Ends(NamedTuple):
    """What a product leaves and reads beside rows and weight, in the order of its kernels' arguments."""

    out_TF: Tensor
    scaled_TF: Tensor | None = None
    """Of a sum its rows times their norm's weight."""
    beside_TF: Tensor | None = None
    """The stream that results are added to, or the rows that they gate."""
    norm_F: Tensor | None = None
    waits_T: Tensor | None = None
    """Squares of the rows, whose norm waits for the product."""
    squares_T: Tensor | None = None
    """Squares of a sum, which are added."""

    @classmethod
    def of(cls, x: Normed, outputs: int, out_TF: Tensor | None = None) -> "Ends":
        """Make room for so many results of each row, unless there is some."""
        return cls(x.rows_TD.new_empty((len(x.rows_TD), outputs)) if out_TF is None else out_TF, waits_T=x.squares_T)

    @classmethod
    def of_sum(cls, stream_TF: Tensor, norm_F: Tensor, squares_T: Tensor) -> "Ends":
        """Make room for the sum of results and a stream, and for its rows on their way to the next product."""
        return cls(torch.empty_like(stream_TF), torch.empty_like(stream_TF), stream_TF, norm_F, squares_T=squares_T)

    @property
    def total(self) -> tuple[Normed, Tensor]:
        """The begun norm of a sum, and that sum."""
        assert self.scaled_TF is not None, "nothing is added"
        return Normed(self.scaled_TF, self.squares_T), self.out_TF
