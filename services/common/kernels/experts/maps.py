"""How TMA reads experts that lie one behind the other, as numbers of bfloat16 or two codes in the place of one."""

import torch
from torch import Tensor

from services.common.kernels.cuda_program import TensorMap

_EIGHT, _COLUMNS = 8, 64
_LANES, _WARPS = 4, 8
"""Lanes that share a place of a block of sums, and warps that have those of a box."""


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


class LaneLines(TensorMap):
    """Boxes of stacked matrices in which all outputs of a lane are neighbours: sixteen lines of each warp.

    They are two eights: gates and what they gate, or neighbours of one matrix. Of the two rows that a lane ends of an
    eight the first box has those of its first outputs, another box those of the next ones.
    """

    def __init__(self, stack_EFD: Tensor, gated: bool, each: int, count: int) -> None:
        """A warp has `each` outputs; `count` experts lie there. Raises DriverError as its base does."""
        first_FD = stack_EFD[0].view(torch.bfloat16)
        lines, depth = first_FD.shape
        own, half = each // _LANES, lines // 2 if gated else 0
        self._encode(
            first_FD, (depth, own, _LANES, 2, (count * lines - half) // each),
            (depth, own * depth, (half or 2) * depth, each * depth), (_COLUMNS, 2, _LANES, 2, _WARPS),
        )  # fmt: skip
