"""The launch of a product of many rows by experts, and what it is made for."""

from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import compiles
from services.common.kernels.experts.maps import LaneLines
from services.common.kernels.experts.scales import ExpertScales
from services.common.kernels.experts.tiles.source import TileShape, program_of

_PROCESSORS = 132


def tile_shape(
    x: Tensor, weight_EFD: Tensor, scales: ExpertScales | None, places: int, ranks: int, outputs: int
) -> TileShape | None:
    """Return what a product of tiles is built for; None where the programs in Triton serve."""
    depth, gated = x.shape[1], weight_EFD.shape[1] != outputs
    if not x.is_cuda or x.dtype != torch.bfloat16:
        return None
    kind = scales is not None, scales is not None and scales.short
    shape = TileShape(depth, outputs, ranks, gated, *kind, places)
    if scales is not None and 1 << scales.shift < shape.warp_outputs:
        return None
    return shape if shape.fits() and _usable(x.device, shape) else None


def multiply_tiles(
    shape: TileShape, x: Tensor, weight_EFD: Tensor, scales: ExpertScales | None, order_NR: Tensor, tiles_2N: Tensor,
    count_1: Tensor, squares_T: Tensor | None, out_PF: Tensor, eps: float,
) -> None:  # fmt: skip
    """Multiply rows [T, D] as the gate and what it gates, or places [N R, I] as the product behind them."""
    lines = LaneLines(weight_EFD, shape.gated, shape.warp_outputs, len(weight_EFD))
    table_EGL, strides = (None, (0, 0, 0)) if scales is None else (scales.table_EGL, scales.strides)
    program_of(shape).launch(
        (_PROCESSORS * shape.ctas, 1), lines, x, table_EGL, order_NR, tiles_2N, count_1, squares_T, out_PF,
        len(order_NR), *strides, 1.0 / shape.depth, eps,
    )  # fmt: skip


@kept
def _usable(device: torch.device, shape: TileShape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"{shape.places} rows by experts of {shape.outputs} outputs do without CUDA C++"
    return compiles(device, otherwise, partial(program_of, shape))
