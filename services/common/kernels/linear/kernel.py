"""Skinny matrix products on the GPU: with few rows the weight's bytes are the whole cost.

Bytes for T rows: F D e, read once; x [T, D] stays in L2. What stands between two products of a block is part of them
(norm, SwiGLU, residual sum). Kernels in CUDA C++ serve up to 32 rows (`skinny/`) and more (`persistent/`), and programs
in Triton few rows elsewhere. Other numbers of rows go through the library, with the same bits (`cublas.py`).
"""

from enum import Enum

import torch
import triton
from torch import Tensor

from services.common.kernels.linear.allowed import allowed
from services.common.kernels.linear.cublas import library_product
from services.common.kernels.linear.cuda import Ends
from services.common.kernels.linear.cuda_products import (
    CudaTiling,
    Kind,
    cuda_added,
    cuda_gates,
    cuda_normed,
    cuda_tiling,
)
from services.common.kernels.linear.ends import end_rows
from services.common.kernels.linear.program import linear_kernel
from services.common.kernels.linear.skinny.tiling import SkinnyTiling
from services.common.kernels.linear.tiling import Tiling, tiling
from services.common.kernels.normed import Normed
from services.common.kernels.pdl import LAUNCH, PDL
from services.common.kernels.rms_norm.kernel import begin_norm
from services.common.kernels.swiglu.kernel import swiglu

_LEAST_ROWS = 16
_MOST_ROWS = 64


class Engine(Enum):
    """What multiplies, and so the order of launches: what is complete when a kernel behind a product begins.

    Such a kernel may begin while the product drains, and must know what it may read before it waits for that. This is
    the one place that says so; whoever reads early asks it.
    """

    BANDS = "few rows in CUDA C++, which let the next kernel begin when they have waited for what is before them"
    TILES = "more rows in CUDA C++, which let the next kernel begin at once"
    TRITON = "programs in Triton, which let the next kernel begin before they wait"
    LIBRARY = "the library, which lets no kernel begin before its end"

    @property
    def earlier_is_complete(self) -> bool:
        """Whether all launches before the product are complete."""
        return self in (Engine.BANDS, Engine.LIBRARY)


def linear(x_TD: Tensor, weight_FD: Tensor, out_TF: Tensor | None = None, cut: Tiling | None = None) -> Tensor:
    """Return `x @ weight.T`, in `out_TF` where that is given."""
    if cut is None and (cuda := _cuda(x_TD, weight_FD, Kind.PLAIN)):
        return cuda_normed(Normed(x_TD), weight_FD, 0.0, cuda, out_TF)
    cut = cut or _cut(x_TD, weight_FD)
    if cut is None:
        return _product(x_TD, weight_FD, out_TF)
    return _launch(Normed(x_TD), weight_FD, Kind.PLAIN, Ends.of(Normed(x_TD), len(weight_FD), out_TF), cut, 0.0)


def linear_gated(normed: Normed, weight_FD: Tensor, eps: float, cut: Tiling | None = None) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    if cut is None and (cuda := _cuda(normed.rows_TD, weight_FD, Kind.GATED)):
        return cuda_normed(normed, weight_FD, eps, cuda)
    cut = cut or _cut(normed.rows_TD, weight_FD)
    if cut is None:
        return swiglu(_product(normed.rows_TD, weight_FD), normed.squares_T, normed.width, eps)
    return _launch(normed, weight_FD, Kind.GATED, Ends.of(normed, len(weight_FD) // 2), cut, eps)


def linear_normed(normed: Normed, weight_FD: Tensor, eps: float, cut: Tiling | None = None) -> Tensor:
    """Return `norm @ weight.T`."""
    if cut is None and (cuda := _cuda(normed.rows_TD, weight_FD, Kind.PLAIN)):
        return cuda_normed(normed, weight_FD, eps, cuda)
    cut = cut or _cut(normed.rows_TD, weight_FD)
    if cut is not None:
        return _launch(normed, weight_FD, Kind.PLAIN, Ends.of(normed, len(weight_FD)), cut, eps)
    product_TF = _product(normed.rows_TD, weight_FD)
    return product_TF if normed.squares_T is None else end_rows(product_TF, normed, None, eps)


def linear_gates(normed: Normed, weight_FD: Tensor, mixed_TF: Tensor, eps: float, cut: Tiling | None = None) -> Tensor:
    """Multiply rows by the sigmoid of `norm @ weight.T`, in place."""
    if cut is None and (cuda := _cuda(normed.rows_TD, weight_FD, Kind.GATES)):
        return cuda_gates(normed, weight_FD, mixed_TF, eps, cuda)
    cut = cut or _cut(normed.rows_TD, weight_FD)
    if cut is not None:
        ends = Ends(mixed_TF, beside_TF=mixed_TF, waits_T=normed.squares_T)
        return _launch(normed, weight_FD, Kind.GATES, ends, cut, eps)
    return end_rows(_product(normed.rows_TD, weight_FD), normed, mixed_TF, eps)


def linear_added(
    x_TD: Tensor,
    weight_FD: Tensor,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    keep: bool = False,
    offset: float = 0.0,
    squares_T: Tensor | None = None,
    cut: Tiling | None = None,
    routed: bool = False,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum; many rows write it over the stream unless `keep`.

    Where rows are `routed` next, few of them leave room for the router's product beside this one.
    """
    if squares_T is None:
        squares_T = torch.zeros(len(x_TD), dtype=torch.int64, device=x_TD.device)
    if cut is None and (cuda := _cuda(x_TD, weight_FD, Kind.ADDED, routed)):
        return cuda_added(x_TD, weight_FD, stream_TF, norm_F, squares_T, offset, cuda)
    cut = cut or _cut(x_TD, weight_FD)
    if cut is None:
        # The library's own sum with the stream is rounded once by some of its kernels and twice by others.
        total_TF = torch.empty_like(stream_TF) if keep else stream_TF
        return begin_norm(linear(x_TD, weight_FD), stream_TF, total_TF, norm_F, squares_T, eps, offset), total_TF
    ends = Ends.of_sum(stream_TF, norm_F, squares_T)
    _launch(Normed(x_TD), weight_FD, Kind.ADDED, ends, cut, eps, offset)
    return ends.total


def engine_of(x_TD: Tensor, weight_FD: Tensor) -> Engine:
    """Return what multiplies rows by a weight, where nothing or a norm follows."""
    if cuda := _cuda(x_TD, weight_FD, Kind.PLAIN):
        return Engine.BANDS if isinstance(cuda, SkinnyTiling) else Engine.TILES
    outputs, depth = weight_FD.shape
    if _cut(x_TD, weight_FD) or not (x_TD.dtype == torch.float64 or allowed(outputs, depth, len(x_TD))):
        return Engine.TRITON
    return Engine.LIBRARY


def _cut(x_TD: Tensor, weight_FD: Tensor) -> Tiling | None:
    rows = len(x_TD)
    if rows > _MOST_ROWS or x_TD.dtype == torch.float64:
        return None
    return tiling(len(weight_FD), _row_tile(rows))


def _cuda(x_TD: Tensor, weight_FD: Tensor, kind: Kind, routed: bool = False) -> CudaTiling | None:
    """Return the cut of a product in CUDA C++; None where the check at start refused it."""
    outputs, depth = weight_FD.shape
    return cuda_tiling(x_TD, weight_FD, kind, routed) if allowed(outputs, depth, len(x_TD)) else None


def _product(x_TD: Tensor, weight_FD: Tensor, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T` of many rows: by the library, or by this kernel where the check at start refused it."""
    rows, (outputs, depth) = len(x_TD), weight_FD.shape
    if x_TD.dtype == torch.float64 or allowed(outputs, depth, rows):
        return library_product(x_TD, weight_FD, out_TF)
    if out_TF is None:
        out_TF = x_TD.new_empty((rows, outputs))
    for first in range(0, rows, _MOST_ROWS):
        part = slice(first, first + _MOST_ROWS)
        cut = tiling(outputs, _row_tile(len(x_TD[part]))) or Tiling(32, 128)
        _launch(Normed(x_TD[part]), weight_FD, Kind.PLAIN, Ends(out_TF[part]), cut, 0.0)
    return out_TF


def _row_tile(rows: int) -> int:
    return max(_LEAST_ROWS, int(triton.next_power_of_2(rows)))


def _launch(
    x: Normed, weight_FD: Tensor, kind: Kind, ends: Ends, cut: Tiling, eps: float, offset: float = 0.0
) -> Tensor:
    """Return the results, which lie in the ends' memory."""
    x_TD, out_TF, depth = x.rows_TD.contiguous(), ends.out_TF, weight_FD.shape[1]
    assert weight_FD.stride(1) == 1, "the kernel reads a weight along its inputs"
    assert out_TF.is_contiguous(), "results must be contiguous"
    (rows, outputs), band = out_TF.shape, cut.band // 2 if kind == Kind.GATED else cut.band
    bands = int(triton.cdiv(outputs, band))
    of_end = (ends.beside_TF, ends.norm_F, ends.scaled_TF, ends.squares_T)
    linear_kernel[(bands,)](
        x_TD, weight_FD, None, None, out_TF, ends.waits_T, *(out_TF if one is None else one for one in of_end),
        rows, outputs, depth, weight_FD.stride(0), 1.0 / depth, eps, ROWS=_row_tile(rows), BAND=cut.band,
        DEPTH=cut.depth, EVEN=depth % cut.depth == 0 and outputs % band == 0, GATED=kind == Kind.GATED,
        ADDED=kind == Kind.ADDED, GATES=kind == Kind.GATES, OFFSET=offset, PDL=PDL, num_warps=cut.warps,
        num_stages=cut.stages, **LAUNCH,
    )  # fmt: skip
    return out_TF
