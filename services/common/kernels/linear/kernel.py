"""Skinny matrix products on the GPU: with few rows the weight's bytes are the whole cost.

Bytes for T rows: F D e, read once; x [T, D] stays in L2. The steps between two products of a block (norm, SwiGLU,
residual sum) are part of the products. Many rows go through cuBLAS, with separate kernels for those steps.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from services.common.kernels.linear.normed import Normed
from services.common.kernels.linear.program import linear_kernel
from services.common.kernels.linear.tiling import Tiling, tiling
from services.common.kernels.pdl import LAUNCH, PDL
from services.common.kernels.rms_norm.kernel import rms_norm
from services.common.kernels.swiglu.kernel import swiglu

_LEAST_ROWS = 16
_MOST_ROWS = 128
_MOST_BANDS = 1 << 16
_counters: dict[torch.device, Tensor] = {}


@dataclass(frozen=True)
class _Sum:
    """The stream that a product is added to, and the norm of the sum."""

    stream_TF: Tensor
    norm_F: Tensor
    offset: float


def linear(x_TD: Tensor, weight_FD: Tensor, cut: Tiling | None = None) -> Tensor:
    """Return `x @ weight.T`."""
    cut = cut or _cut(x_TD, weight_FD)
    return F.linear(x_TD, weight_FD) if cut is None else _launch(Normed(x_TD), weight_FD, cut, 0.0)[0]


def linear_normed(normed: Normed, weight_FD: Tensor, eps: float, cut: Tiling | None = None) -> Tensor:
    """Return `norm @ weight.T`."""
    cut = cut or _cut(normed.rows_TD, weight_FD)
    if cut is None:
        return F.linear(_divided(normed, eps), weight_FD)
    return _launch(normed, weight_FD, cut, eps)[0]


def linear_gated(normed: Normed, weight_FD: Tensor, eps: float, cut: Tiling | None = None) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    cut = cut or _cut(normed.rows_TD, weight_FD)
    if cut is None:
        return swiglu(F.linear(_divided(normed, eps), weight_FD))
    return _launch(normed, weight_FD, cut, eps, gated=True)[0]


def linear_added(
    x_TD: Tensor,
    weight_FD: Tensor,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    keep: bool = False,
    offset: float = 0.0,
    cut: Tiling | None = None,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum; many rows write it over the stream unless `keep`."""
    cut = cut or _cut(x_TD, weight_FD)
    if cut is None:
        # The product adds to the stream in place: a separate sum would read and write the rows once more.
        total_TF = (stream_TF.clone() if keep else stream_TF).addmm_(x_TD, weight_FD.t())
        return Normed(rms_norm(total_TF, norm_F, eps, offset)), total_TF
    total_TF, normed = _launch(Normed(x_TD), weight_FD, cut, eps, added=_Sum(stream_TF, norm_F, offset))
    return normed, total_TF


def _cut(x_TD: Tensor, weight_FD: Tensor) -> Tiling | None:
    rows = len(x_TD)
    if rows > _MOST_ROWS or x_TD.dtype == torch.float64:
        return None
    outputs, depth = weight_FD.shape
    return tiling(outputs, depth, _row_tile(rows), x_TD.element_size())


def _row_tile(rows: int) -> int:
    return max(_LEAST_ROWS, int(triton.next_power_of_2(rows)))


def _divided(normed: Normed, eps: float) -> Tensor:
    """Finish a norm that this product cannot finish itself."""
    if normed.squares_TP is None:
        return normed.rows_TD
    mean_T1 = normed.squares_TP.sum(1, keepdim=True) / normed.rows_TD.shape[1]
    return (normed.rows_TD * (mean_T1 + eps).rsqrt()).to(normed.rows_TD.dtype)


def _launch(
    x: Normed, weight_FD: Tensor, cut: Tiling, eps: float, gated: bool = False, added: _Sum | None = None
) -> tuple[Tensor, Normed]:
    x_TD, (lines, depth) = x.rows_TD.contiguous(), weight_FD.shape
    assert weight_FD.stride(1) == 1, "the kernel reads a weight along its inputs"
    rows, tile = len(x_TD), _row_tile(len(x_TD))
    outputs, band = (lines // 2, cut.band // 2) if gated else (lines, cut.band)
    bands = int(triton.cdiv(outputs, band))
    out_TF = x_TD.new_empty((rows, outputs))
    sums = x_TD.new_empty((cut.shares, bands, cut.band, tile) if cut.shares > 1 else 0, dtype=torch.float32)
    scaled_TF, squares_TP = out_TF, sums
    if added:
        scaled_TF, squares_TP = torch.empty_like(out_TF), x_TD.new_empty((rows, bands), dtype=torch.float32)
    parts = 0 if x.squares_TP is None else x.squares_TP.shape[1]
    x_tiles, weight_tiles = _described(x_TD, weight_FD, cut, gated) if cut.bulk else (x_TD, weight_FD)
    linear_kernel[(bands, cut.shares)](
        x_tiles, weight_tiles, out_TF, sums, _counter(x_TD.device), x.squares_TP if parts else sums,
        added.stream_TF if added else out_TF, added.norm_F if added else out_TF, scaled_TF, squares_TP,
        rows, outputs, depth, weight_FD.stride(0), eps,
        ROWS=tile, BAND=cut.band, DEPTH=cut.depth, SHARES=cut.shares,
        EVEN=depth % cut.depth == 0 and outputs % band == 0,
        PARTS=parts, PARTS_PAD=triton.next_power_of_2(parts), GATED=gated, ADDED=added is not None,
        OFFSET=added.offset if added else 0.0, BULK=cut.bulk, PDL=PDL, num_warps=cut.warps, num_stages=cut.stages,
        **LAUNCH,
    )  # fmt: skip
    return out_TF, Normed(scaled_TF, squares_TP)


def _described(x_TD: Tensor, weight_FD: Tensor, cut: Tiling, gated: bool) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Describe tiles of both operands; a gated band is the same lines of the weight's two halves."""
    (rows, depth), (lines, _), stride = x_TD.shape, weight_FD.shape, weight_FD.stride(0)
    x_tiles = TensorDescriptor(x_TD, [rows, depth], [depth, 1], [_row_tile(rows), cut.depth])
    if not gated:
        return x_tiles, TensorDescriptor(weight_FD, [lines, depth], [stride, 1], [cut.band, cut.depth])
    shape, strides = [2, lines // 2, depth], [lines // 2 * stride, stride, 1]
    return x_tiles, TensorDescriptor(weight_FD, shape, strides, [2, cut.band // 2, cut.depth])


def _counter(device: torch.device) -> Tensor:
    """Zeros, one for each band.

    A launch resets them to zero, so two products with shares must not run at the same time.
    """
    if device not in _counters:
        _counters[device] = torch.zeros(_MOST_BANDS, dtype=torch.int32, device=device)
    return _counters[device]
