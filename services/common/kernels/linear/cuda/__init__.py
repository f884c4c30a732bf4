"""What the products in CUDA C++ share: the ring of stages, and the arithmetic that ends a product."""

from enum import IntEnum
from typing import NamedTuple

from torch import Tensor


class Kind(IntEnum):
    """What follows a product: its norm alone, SwiGLU of its halves, the sum with a stream, or that it gates rows.

    Of BEST only each row's best number of a tile is left, and its line. SCORED leaves both, and all results.
    """

    PLAIN = 0
    GATED = 1
    ADDED = 2
    GATES = 3
    BEST = 4
    SCORED = 5


class TileBest(NamedTuple):
    """The best score of each row in each tile of `tile` lines, and its line: the lowest among equals.

    Scores are float32 [R, tiles], NaN where a tile holds NaN or +inf; lines are int32 [R, tiles].
    """

    values_RT: Tensor
    lines_RT: Tensor
    tile: int
