"""Products by weights of eight bits on the GPU, of rows that are rounded to eight bits before.

Bytes for T rows: F D of weights, read once where a tile holds all rows, and T D of integers. What stands between
two products of a block is part of them, at any number of rows. On an H100 or H200 kernels in CUDA C++ (`persistent/`)
serve all that they can cut; programs in Triton serve other GPUs, with the same bits.
"""

import torch
import triton
from torch import Tensor

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.int8_cuda import eight_tiling, multiply
from services.common.kernels.linear.int8_rows import quantised_rows
from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.kernel import Sum
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.program import linear_kernel
from services.common.kernels.linear.tiling import Int8Cut, int8_cut
from services.common.kernels.normed import Normed
from services.common.kernels.pdl import LAUNCH, PDL
from services.common.kernels.rms_norm.kernel import begin_norm

Cut = Int8Cut | PersistentTiling
_MOST_ADDED = 256
"""Rows up to which a product in Triton adds itself to the stream."""


def linear(x_TD: Tensor, weight: Int8Weight, out_TF: Tensor | None = None, cut: Cut | None = None) -> Tensor:
    """Return `x @ weight.T`, in `out_TF` where that is given."""
    return _launch(Normed(x_TD), weight, cut, 0.0, out_TF=out_TF)[0]


def linear_gated(normed: Normed, weight: Int8Weight, eps: float, cut: Cut | None = None) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    return _launch(normed, weight, cut, eps, gated=True)[0]


def linear_added(
    x_TD: Tensor,
    weight: Int8Weight,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    offset: float = 0.0,
    squares_T: Tensor | None = None,
    cut: Cut | None = None,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum; large tiles have no registers left to add it."""
    if squares_T is None:
        squares_T = torch.zeros(len(x_TD), dtype=torch.int64, device=x_TD.device)
    cut = cut or eight_tiling(x_TD, weight, Kind.ADDED)
    if cut is None and len(x_TD) > _MOST_ADDED:
        total_TF = torch.empty_like(stream_TF)
        return begin_norm(linear(x_TD, weight), stream_TF, total_TF, norm_F, squares_T, eps, offset), total_TF
    total_TF, normed = _launch(Normed(x_TD), weight, cut, eps, added=Sum(stream_TF, norm_F, squares_T, offset))
    return normed, total_TF


def _launch(
    x: Normed,
    weight: Int8Weight,
    cut: Cut | None,
    eps: float,
    gated: bool = False,
    added: Sum | None = None,
    out_TF: Tensor | None = None,
) -> tuple[Tensor, Normed]:
    rows, lines, kind = len(x.rows_TD), len(weight), Kind.GATED if gated else Kind.ADDED if added else Kind.PLAIN
    whole = quantised_rows(x.rows_TD)
    cut = cut or eight_tiling(x.rows_TD, weight, kind) or int8_cut(lines, rows)
    if out_TF is None:
        out_TF = x.rows_TD.new_empty((rows, lines // 2 if gated else lines))
    assert out_TF.is_contiguous(), "results must be contiguous"
    scaled_TF = torch.empty_like(out_TF) if added else out_TF
    if isinstance(cut, PersistentTiling):
        stream_TF, norm_F, squares_T = (added.stream_TF, added.norm_F, added.squares_T) if added else (None, None, None)
        ends = (out_TF, scaled_TF, stream_TF, norm_F, x.squares_T, squares_T)
        multiply(cut, whole, weight, ends, eps, added.offset if added else 0.0)
    else:
        _launch_triton(cut, whole, x, weight, out_TF, scaled_TF, eps, gated, added)
    return out_TF, Normed(scaled_TF, added.squares_T if added else None)


def _launch_triton(
    cut: Int8Cut,
    whole: tuple[Tensor, Tensor],
    x: Normed,
    weight: Int8Weight,
    out_TF: Tensor,
    scaled_TF: Tensor,
    eps: float,
    gated: bool,
    added: Sum | None,
) -> None:
    (whole_TD, scale_T), (rows, outputs), depth = whole, out_TF.shape, weight.shape[1]
    band = cut.band // 2 if gated else cut.band
    linear_kernel[(triton.cdiv(rows, cut.rows), triton.cdiv(outputs, band))](
        whole_TD, weight.whole_FD, weight.scale_F, scale_T, out_TF, x.squares_T,
        added.stream_TF if added else out_TF, added.norm_F if added else out_TF, scaled_TF,
        added.squares_T if added else out_TF,
        rows, outputs, depth, weight.whole_FD.stride(0), 1.0 / depth, eps,
        ROWS=cut.rows, BAND=cut.band, DEPTH=cut.depth, EVEN=depth % cut.depth == 0 and outputs % band == 0,
        GATED=gated, ADDED=added is not None, GATES=False, OFFSET=added.offset if added else 0.0, PDL=PDL,
        num_warps=cut.warps, num_stages=cut.stages, **LAUNCH,
    )  # fmt: skip
