"""How TMA reads experts that lie one behind the other, as numbers of bfloat16 or two codes in the place of one."""

import torch
from torch import Tensor

from services.common.kernels.cuda_program import TensorMap

_EIGHT, _COLUMNS = 8, 64


class GatedLines(TensorMap):
    """Boxes of stacked matrices: eight lines of the first half beside the same eight of the second, in turn."""

    def __init__(self, stack_EFD: Tensor, outputs: int, count: int) -> None:
        """A box has so many lines of each half; `count` experts lie there. Raises DriverError as its base does."""
        first_FD = stack_EFD[0].view(torch.bfloat16)
        lines, depth = first_FD.shape
        self._encode(
            first_FD, (depth, _EIGHT, 2, lines // 2 // _EIGHT, count),
            (depth, lines // 2 * depth, _EIGHT * depth, lines * depth), (_COLUMNS, _EIGHT, 2, outputs // _EIGHT, 1),
        )  # fmt: skip


class StackedLines(TensorMap):
    """Boxes of stacked matrices, of which a box has so many lines."""

    def __init__(self, stack_EFD: Tensor, outputs: int, count: int) -> None:
        """`count` experts lie there. Raises DriverError as its base does."""
        first_FD = stack_EFD[0].view(torch.bfloat16)
        lines, depth = first_FD.shape
        self._encode(first_FD, (depth, count * lines), (depth,), (_COLUMNS, outputs))
