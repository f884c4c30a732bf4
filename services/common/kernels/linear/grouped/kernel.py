"""Products of rows and weights of e4m3 codes on an H100 or H200 (`persistent/`), with what follows them in a block.

Bytes for T rows: F D of codes, read once where a tile holds all rows, and T D of codes. A row has the same bits at any
number of rows: the tensor cores add up a group alike in every tile, and groups are added in order.
"""

import torch
from torch import Tensor

from services.common.kernels.linear.cuda import Ends, Kind
from services.common.kernels.linear.grouped.rows import rounded_rows
from services.common.kernels.linear.grouped.weight import GroupedWeight
from services.common.kernels.linear.persistent.grouped import grouped_cut
from services.common.kernels.linear.persistent.launch import launch
from services.common.kernels.normed import Normed


def linear(x_TD: Tensor, weight: GroupedWeight, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T`, in `out_TF` where that is given."""
    return _launch(x_TD, weight, Kind.PLAIN, Ends.of(Normed(x_TD), len(weight), out_TF), 0.0)


def linear_gated(normed: Normed, weight: GroupedWeight, eps: float) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    return _launch(normed.rows_TD, weight, Kind.GATED, Ends.of(normed, len(weight) // 2), eps)


def linear_added(
    x_TD: Tensor,
    weight: GroupedWeight,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    offset: float = 0.0,
    squares_T: Tensor | None = None,
) -> tuple[Normed, Tensor]:
    """Return the begun norm of `stream + x @ weight.T`, and that sum."""
    if squares_T is None:
        squares_T = torch.zeros(len(x_TD), dtype=torch.int64, device=x_TD.device)
    ends = Ends.of_sum(stream_TF, norm_F, squares_T)
    _launch(x_TD, weight, Kind.ADDED, ends, eps, offset)
    return ends.total


def _launch(x_TD: Tensor, weight: GroupedWeight, kind: Kind, ends: Ends, eps: float, offset: float = 0.0) -> Tensor:
    """Return the results, which lie in the ends' memory."""
    cut = grouped_cut(*weight.shape, len(x_TD), kind) if weight.whole else None
    assert cut, f"a weight of {weight.shape} has no groups"
    codes_TD, scale_TG = rounded_rows(x_TD)
    launch(cut, codes_TD, weight.codes_FD, (weight.scale_BG, scale_TG), ends, eps, offset)
    return ends.out_TF
