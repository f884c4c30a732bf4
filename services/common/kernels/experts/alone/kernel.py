"""The launch of the last product of a row that is alone, and which rows it takes."""

from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import TensorMap, compiles
from services.common.kernels.experts.alone.source import LINES, Shape, program_of, shape_of


def serving(x: Tensor, down_EDF: Tensor, tile: int) -> Shape | None:
    """Return what the kernel is built for, which takes the first of so many places of a tile; None where Triton serves.

    `x` is a row, or what the first product made of it: of a type and a device that both have.
    """
    if not x.is_cuda or x.dtype != torch.bfloat16 or not TensorMap.takes(down_EDF[0]):
        return None
    shape = shape_of(tile, *down_EDF.shape[1:])
    return shape if shape and _usable(x.device, shape) else None


def multiply_alone(
    inner_PI: Tensor, down_EDF: Tensor, followed: bool, order_NR: Tensor, tiles_2N: Tensor, count_1: Tensor,
    shape: Shape, out_PD: Tensor,
) -> None:  # fmt: skip
    """Multiply the first place of each tile by its expert's lines; one expert more lies behind where they are followed.

    Places must be complete when the product before, which made what they hold, lets this kernel begin.
    """
    count, outputs, depth = down_EDF.shape
    lines_FI = down_EDF.as_strided(((count + followed) * outputs, depth), (depth, 1))
    program_of(shape).launch(
        (len(order_NR), outputs // LINES), TensorMap(inner_PI, 1), TensorMap(lines_FI, LINES), order_NR, tiles_2N,
        count_1, out_PD, outputs,
    )  # fmt: skip


@kept
def _usable(device: torch.device, shape: Shape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    return compiles(device, "rows alone go through experts by Triton", partial(program_of, shape))
