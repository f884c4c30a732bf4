"""Products by weights of eight bits on the GPU, of rows that are rounded to eight bits before.

Bytes for T rows: F D of weights, read once where a tile holds all rows, and T D of integers. What stands between
two products of a block is part of them, at any number of rows. On an H100 or H200 kernels in CUDA C++ (`persistent/`)
serve all that they can cut; programs in Triton serve other GPUs, with the same bits.
"""

from functools import partial

import torch
import triton
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import TensorMap, compiles
from services.common.kernels.linear.cuda import Ends, Kind
from services.common.kernels.linear.int8_rows import quantised_rows
from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.persistent.eight import eight_cut
from services.common.kernels.linear.persistent.launch import launch, program_of
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
    return _launch(Normed(x_TD), weight, Kind.PLAIN, Ends.of(Normed(x_TD), len(weight), out_TF), cut, 0.0)


def linear_gated(normed: Normed, weight: Int8Weight, eps: float, cut: Cut | None = None) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    return _launch(normed, weight, Kind.GATED, Ends.of(normed, len(weight) // 2), cut, eps)


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
    ends = Ends.of_sum(stream_TF, norm_F, squares_T)
    _launch(Normed(x_TD), weight, Kind.ADDED, ends, cut, eps, offset)
    return ends.total


def eight_tiling(x_TD: Tensor, weight: Int8Weight, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where the programs in Triton serve."""
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16:
        return None
    tiling = eight_cut(*weight.shape, len(x_TD), kind)
    if tiling is None or not TensorMap.takes(weight.whole_FD):
        return None
    return tiling if _usable(x_TD.device, tiling) else None


def _launch(
    x: Normed, weight: Int8Weight, kind: Kind, ends: Ends, cut: Cut | None, eps: float, offset: float = 0.0
) -> Tensor:
    """Return the results, which lie in the ends' memory."""
    whole = quantised_rows(x.rows_TD)
    cut = cut or eight_tiling(x.rows_TD, weight, kind) or int8_cut(len(weight), len(x.rows_TD))
    assert ends.out_TF.is_contiguous(), "results must be contiguous"
    if isinstance(cut, PersistentTiling):
        launch(cut, whole[0], weight.whole_FD, (weight.scale_F, whole[1]), ends, eps, offset)
    else:
        _launch_triton(cut, whole, weight, kind, ends, eps, offset)
    return ends.out_TF


def _launch_triton(
    cut: Int8Cut, whole: tuple[Tensor, Tensor], weight: Int8Weight, kind: Kind, ends: Ends, eps: float, offset: float
) -> None:
    (whole_TD, scale_T), out_TF, depth = whole, ends.out_TF, weight.shape[1]
    (rows, outputs), band = out_TF.shape, cut.band // 2 if kind == Kind.GATED else cut.band
    of_sum = (ends.beside_TF, ends.norm_F, ends.scaled_TF, ends.squares_T)
    linear_kernel[(triton.cdiv(rows, cut.rows), triton.cdiv(outputs, band))](
        whole_TD, weight.whole_FD, weight.scale_F, scale_T, out_TF, ends.waits_T,
        *(out_TF if one is None else one for one in of_sum),
        rows, outputs, depth, weight.whole_FD.stride(0), 1.0 / depth, eps,
        ROWS=cut.rows, BAND=cut.band, DEPTH=cut.depth, EVEN=depth % cut.depth == 0 and outputs % band == 0,
        GATED=kind == Kind.GATED, ADDED=kind == Kind.ADDED, GATES=False, OFFSET=offset, PDL=PDL,
        num_warps=cut.warps, num_stages=cut.stages, **LAUNCH,
    )  # fmt: skip


@kept
def _usable(device: torch.device, tiling: PersistentTiling) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"products of eight bits in tiles of {tiling.rows} rows do without CUDA C++"
    return compiles(device, otherwise, partial(program_of, tiling))
