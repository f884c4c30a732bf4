"""Products by weights of eight bits on the GPU: half the bytes of wide ones, and the same bits.

Bytes for T rows: F D and a 32nd of it for scales, read once where a tile holds all rows. Many rows go through the
library with the wide numbers.
"""

import torch
import triton
from torch import Tensor

from services.common.kernels.linear import kernel
from services.common.kernels.linear.int8_tiling import Int8Cut, int8_cut
from services.common.kernels.linear.int8_weight import GROUP, Int8Weight, operands
from services.common.kernels.linear.kernel import Sum
from services.common.kernels.linear.normed import Normed
from services.common.kernels.linear.program import linear_kernel
from services.common.kernels.pdl import LAUNCH, PDL


def linear(x_TD: Tensor, weight: Int8Weight, out_TF: Tensor | None = None, cut: Int8Cut | None = None) -> Tensor:
    """Return `x @ weight.T`, in `out_TF` where that is given."""
    cut = cut or _cut(x_TD, weight)
    if cut is None:
        return kernel.linear(x_TD, weight.widened(), out_TF)
    return _launch(Normed(x_TD), weight, cut, 0.0, out_TF=out_TF)[0]


def linear_gated(normed: Normed, weight: Int8Weight, eps: float, cut: Int8Cut | None = None) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    cut = cut or _cut(normed.rows_TD, weight)
    if cut is None:
        return kernel.linear_gated(normed, weight.widened(), eps)
    return _launch(normed, weight, cut, eps, gated=True)[0]


def linear_added(
    x_TD: Tensor,
    weight: Int8Weight,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    keep: bool = False,
    offset: float = 0.0,
    squares_T: Tensor | None = None,
    cut: Int8Cut | None = None,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum; many rows write it over the stream unless `keep`."""
    cut = cut or _cut(x_TD, weight)
    if cut is None:
        return kernel.linear_added(x_TD, weight.widened(), stream_TF, norm_F, eps, keep, offset, squares_T)
    if squares_T is None:
        squares_T = torch.zeros(len(x_TD), dtype=torch.int64, device=x_TD.device)
    total_TF, normed = _launch(Normed(x_TD), weight, cut, eps, added=Sum(stream_TF, norm_F, squares_T, offset))
    return normed, total_TF


def _cut(x_TD: Tensor, weight: Int8Weight) -> Int8Cut | None:
    return None if x_TD.dtype == torch.float64 else int8_cut(*weight.shape, len(x_TD))


def _launch(
    x: Normed,
    weight: Int8Weight,
    cut: Int8Cut,
    eps: float,
    gated: bool = False,
    added: Sum | None = None,
    out_TF: Tensor | None = None,
) -> tuple[Tensor, Normed]:
    x_TD, (lines, depth) = x.rows_TD.contiguous(), weight.shape
    words, scales_GF, strides = operands(weight)
    outputs, band = (lines // 2, cut.band // 2) if gated else (lines, cut.band)
    if out_TF is None:
        out_TF = x_TD.new_empty((len(x_TD), outputs))
    assert out_TF.is_contiguous(), "results must be contiguous"
    scaled_TF = torch.empty_like(out_TF) if added else out_TF
    linear_kernel[(triton.cdiv(len(x_TD), cut.rows), triton.cdiv(outputs, band))](
        x_TD, words, scales_GF, out_TF, x.squares_T,
        added.stream_TF if added else out_TF, added.norm_F if added else out_TF, scaled_TF,
        added.squares_T if added else out_TF,
        len(x_TD), outputs, depth, *strides, 1.0 / depth, eps,
        ROWS=cut.rows, BAND=cut.band, DEPTH=GROUP, EVEN=depth % GROUP == 0 and outputs % band == 0, GATED=gated,
        ADDED=added is not None, GATES=False, OFFSET=added.offset if added else 0.0, X_LEFT=cut.x_left, BULK=False,
        PDL=PDL, num_warps=cut.warps, num_stages=cut.stages, **LAUNCH,
    )  # fmt: skip
    return out_TF, Normed(scaled_TF, added.squares_T if added else None)
