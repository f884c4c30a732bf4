"""What a product with a head can leave beside its scores."""

from typing import NamedTuple

from torch import Tensor


class TileBest(NamedTuple):
    """The best score of each row in each tile of `tile` lines, and its line: the lowest among equals.

    Scores are float32 [R, tiles], NaN where a tile holds NaN or +inf; lines are int32 [R, tiles].
    """

    values_RT: Tensor
    lines_RT: Tensor
    tile: int
