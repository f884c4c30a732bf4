"""Products by packed weights on the GPU, with the bits of those by the widened weight.

On an H100 or H200 kernels in CUDA C++ (`packed/`) serve up to 64 rows, and some more by parts. Many rows are multiplied
by the weight widened into memory: that costs three bytes a number, beside what the product itself takes.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from services.common.kernels.linear import kernel
from services.common.kernels.linear.allowed import allowed
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.packed.launch import multiply, packed_tiling
from services.common.kernels.linear.packed.tiling import ROWS, PackedTiling
from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.kernels.linear.packed_widen import widened
from services.common.kernels.normed import Normed

MOST_ROWS = 256
"""Rows that are multiplied by parts: more parts would read the weight more often than widening does."""
_PART = ROWS[-1]


def linear(x_TD: Tensor, weight: PackedWeight, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T`, in `out_TF` where that is given."""
    if not _serves(x_TD, weight, Kind.PLAIN):
        return kernel.linear(x_TD, widened(weight), out_TF)
    if out_TF is None:
        out_TF = x_TD.new_empty((len(x_TD), len(weight)))
    for part, tiling in _parts(x_TD, weight, Kind.PLAIN):
        multiply(tiling, x_TD[part], weight, (out_TF[part], None, None, None, None, None), 0.0, 0.0)
    return out_TF


def linear_gated(normed: Normed, weight: PackedWeight, eps: float) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    x_TD, squares_T = normed.rows_TD, normed.squares_T
    if not _serves(x_TD, weight, Kind.GATED):
        return kernel.linear_gated(normed, widened(weight), eps)
    out_TI = x_TD.new_empty((len(x_TD), len(weight) // 2))
    for part, tiling in _parts(x_TD, weight, Kind.GATED):
        squares = None if squares_T is None else squares_T[part]
        multiply(tiling, x_TD[part], weight, (out_TI[part], None, None, None, squares, None), eps, 0.0)
    return out_TI


def linear_added(
    x_TD: Tensor,
    weight: PackedWeight,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    keep: bool = False,
    offset: float = 0.0,
    squares_T: Tensor | None = None,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum; many rows write it over the stream unless `keep`."""
    if not _serves(x_TD, weight, Kind.ADDED):
        return kernel.linear_added(x_TD, widened(weight), stream_TF, norm_F, eps, keep, offset, squares_T)
    if squares_T is None:
        squares_T = torch.zeros(len(x_TD), dtype=torch.int64, device=x_TD.device)
    total_TF, scaled_TF = torch.empty_like(stream_TF), torch.empty_like(stream_TF)
    for part, tiling in _parts(x_TD, weight, Kind.ADDED):
        ends = (total_TF[part], scaled_TF[part], stream_TF[part], norm_F, None, squares_T[part])
        multiply(tiling, x_TD[part], weight, ends, eps, offset)
    return Normed(scaled_TF, squares_T), total_TF


def _serves(x_TD: Tensor, weight: PackedWeight, kind: Kind) -> bool:
    """Whether rows are multiplied by the codes; not where the check at start refused it."""
    rows = len(x_TD)
    if rows > MOST_ROWS or not allowed(*weight.shape, rows):
        return False
    return all(packed_tiling(x_TD[first : first + _PART], weight, kind) for first in range(0, rows, _PART))


def _parts(x_TD: Tensor, weight: PackedWeight, kind: Kind) -> Iterator[tuple[slice, PackedTiling]]:
    for first in range(0, len(x_TD), _PART):
        part = slice(first, first + _PART)
        tiling = packed_tiling(x_TD[part], weight, kind)
        assert tiling is not None, "all parts are served, or none"
        yield part, tiling
