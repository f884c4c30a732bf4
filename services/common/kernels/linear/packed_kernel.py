"""Products by packed weights on the GPU, with the bits of those by the widened weight.

On an H100 or H200 kernels in CUDA C++ (`packed/`) serve up to 128 rows. More are multiplied by the weight widened into
memory: that costs three bytes a number, beside what the product itself takes. A weight that has its numbers beside its
codes is multiplied by codes up to FEW_ROWS alone: with more rows codes lose to numbers.
"""

import torch
from torch import Tensor

from services.common.kernels.linear import kernel
from services.common.kernels.linear.allowed import allowed
from services.common.kernels.linear.cuda import Ends, Kind
from services.common.kernels.linear.packed.launch import multiply, packed_tiling
from services.common.kernels.linear.packed.tiling import PackedTiling
from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.kernels.linear.packed_widen import widened
from services.common.kernels.normed import Normed

FEW_ROWS = 32


def linear(x_TD: Tensor, weight: PackedWeight, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T`, in `out_TF` where that is given."""
    tiling = _tiling(x_TD, weight, Kind.PLAIN)
    if tiling is None:
        return kernel.linear(x_TD, _numbers(weight), out_TF)
    ends = Ends.of(Normed(x_TD), len(weight), out_TF)
    multiply(tiling, x_TD, weight, ends, 0.0, 0.0)
    return ends.out_TF


def linear_gated(normed: Normed, weight: PackedWeight, eps: float) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    tiling = _tiling(normed.rows_TD, weight, Kind.GATED)
    if tiling is None:
        return kernel.linear_gated(normed, _numbers(weight), eps)
    ends = Ends.of(normed, len(weight) // 2)
    multiply(tiling, normed.rows_TD, weight, ends, eps, 0.0)
    return ends.out_TF


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
    tiling = _tiling(x_TD, weight, Kind.ADDED)
    if tiling is None:
        return kernel.linear_added(x_TD, _numbers(weight), stream_TF, norm_F, eps, keep, offset, squares_T)
    if squares_T is None:
        squares_T = torch.zeros(len(x_TD), dtype=torch.int64, device=x_TD.device)
    ends = Ends.of_sum(stream_TF, norm_F, squares_T)
    multiply(tiling, x_TD, weight, ends, eps, offset)
    return ends.total


def _tiling(x_TD: Tensor, weight: PackedWeight, kind: Kind) -> PackedTiling | None:
    """Return how rows are multiplied by the codes; None where they are not, or the check at start refused it."""
    if weight.numbers_FD is not None and len(x_TD) > FEW_ROWS:
        return None
    return packed_tiling(x_TD, weight, kind) if allowed(*weight.shape, len(x_TD)) else None


def _numbers(weight: PackedWeight) -> Tensor:
    """Return what many rows are multiplied by."""
    return widened(weight) if weight.numbers_FD is None else weight.numbers_FD
