"""Which products by packed weights a kernel in CUDA C++ serves, and how it is launched."""

from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import Boxes, TensorMap, compiles
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.packed.source import program_of
from services.common.kernels.linear.packed.tiling import GROUP, PackedTiling, Packing, packed_cut
from services.common.kernels.linear.packed_weight import LEAST_SHARED, PackedWeight

_COLUMNS = 64
"""Numbers of two bytes in a swizzled row."""


def takes_codes(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products are by codes there: on an H100 or H200, in bfloat16."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return False
    least = packed_cut(LEAST_SHARED, GROUP, 1, Kind.PLAIN, Packing(8, 1, False, True))
    return least is not None and _usable(device, least)


def packed_tiling(x_TD: Tensor, weight: PackedWeight, kind: Kind) -> PackedTiling | None:
    """Return how a product is cut; None where the widened weight serves."""
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16 or not TensorMap.takes(x_TD):
        return None
    cut = cut_of(weight, len(x_TD), kind)
    return cut if cut and _usable(x_TD.device, cut) else None


def cut_of(weight: PackedWeight, rows: int, kind: Kind) -> PackedTiling | None:
    """Return the cut of so many rows; None where there is none."""
    packing = Packing(weight.bits, len(weight.scale_GL), 1 << weight.shift < LEAST_SHARED, weight.short)
    return packed_cut(*weight.shape, rows, kind, packing)


def multiply(
    tiling: PackedTiling, x_TD: Tensor, weight: PackedWeight, ends: tuple[Tensor | None, ...], eps: float, offset: float
) -> None:
    """Multiply rows and end the product.

    `ends`: the results, rows of their norm, what stands beside, the norm, squares it waits for, and those added.
    """
    assert all(end is None or end.is_contiguous() for end in ends), "rows must be contiguous"
    rows, (lines, depth), halves = len(x_TD), weight.shape, tiling.halves
    height, outputs = tiling.height(rows), lines // halves
    # TMA is told of two codes, or of four, as one number of two bytes.
    codes_FN = weight.codes_FB.view(torch.bfloat16)
    columns, apart = codes_FN.shape[1], codes_FN.stride(0)
    maps = (
        Boxes(
            x_TD, (_COLUMNS, rows, depth // _COLUMNS, 1), (x_TD.stride(0), _COLUMNS, _COLUMNS),
            (_COLUMNS, height, tiling.subs, 1),
        ),
        Boxes(
            codes_FN, (_COLUMNS, outputs, halves, columns // _COLUMNS), (apart, outputs * apart, _COLUMNS),
            (_COLUMNS, tiling.band, halves, tiling.thick),
        ),
    )  # fmt: skip
    program_of(tiling).launch(
        tiling.grid(rows, lines), *maps, weight.scale_GL, *ends, rows, height, outputs, depth, *weight.scale_GL.shape,
        weight.shift, 1.0 / depth, eps, offset,
    )  # fmt: skip


@kept
def _usable(device: torch.device, tiling: PackedTiling) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    return compiles(device, f"packed products of {tiling.rows} rows are widened", partial(program_of, tiling))
