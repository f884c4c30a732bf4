"""Products of rows and weights of e4m3 codes on an H100 or H200 (`persistent/`), with what follows them in a block.

Bytes for T rows: F D of codes, read once where a tile holds all rows, and T D of codes. A row has the same bits at any
number of rows: the tensor cores add up a group alike in every tile, and groups are added in order.
"""

import torch
from torch import Tensor

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.grouped.rows import rounded_rows
from services.common.kernels.linear.grouped.weight import GroupedWeight
from services.common.kernels.linear.kernel import Sum
from services.common.kernels.linear.persistent.grouped import grouped_cut
from services.common.kernels.linear.persistent.launch import launch
from services.common.kernels.normed import Normed


def linear(x_TD: Tensor, weight: GroupedWeight, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T`, in `out_TF` where that is given."""
    return _launch(Normed(x_TD), weight, Kind.PLAIN, 0.0, out_TF=out_TF)[0]


def linear_gated(normed: Normed, weight: GroupedWeight, eps: float) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    return _launch(normed, weight, Kind.GATED, eps)[0]


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
    added = Sum(stream_TF, norm_F, squares_T, offset)
    total_TF, normed = _launch(Normed(x_TD), weight, Kind.ADDED, eps, added)
    return normed, total_TF


def _launch(
    x: Normed,
    weight: GroupedWeight,
    kind: Kind,
    eps: float,
    added: Sum | None = None,
    out_TF: Tensor | None = None,
) -> tuple[Tensor, Normed]:
    rows, lines = len(x.rows_TD), len(weight)
    cut = grouped_cut(*weight.shape, rows, kind) if weight.whole else None
    assert cut, f"a weight of {weight.shape} has no groups"
    codes_TD, scale_TG = rounded_rows(x.rows_TD)
    if out_TF is None:
        out_TF = x.rows_TD.new_empty((rows, lines // cut.halves))
    scaled_TF = torch.empty_like(out_TF) if added else out_TF
    stream_TF, norm_F, squares_T = (added.stream_TF, added.norm_F, added.squares_T) if added else (None, None, None)
    ends = (out_TF, scaled_TF, stream_TF, norm_F, x.squares_T, squares_T)
    offset = added.offset if added else 0.0
    launch(cut, codes_TD, weight.codes_FD, (weight.scale_BG, scale_TG), ends, eps, offset)
    return out_TF, Normed(scaled_TF, squares_T)
