"""Products in CUDA C++ with what follows them in a block: few rows (`skinny/`) or more (`persistent/`).

All kinds of kernel are given the same ends, and have the bits of all other products.
"""

from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import CudaProgram, InterleavedHalves, TensorMap, compiles
from services.common.kernels.linear.cuda import Ends, Kind
from services.common.kernels.linear.persistent.launch import launch
from services.common.kernels.linear.persistent.launch import program_of as persistent_program
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.persistent.wide import wide_cut
from services.common.kernels.linear.skinny.source import program_of as skinny_program
from services.common.kernels.linear.skinny.tiling import SkinnyTiling, skinny_cut
from services.common.kernels.normed import Normed

__all__ = ["CudaTiling", "Kind", "cuda_added", "cuda_gates", "cuda_normed", "cuda_tiling"]

CudaTiling = SkinnyTiling | PersistentTiling


def cuda_tiling(x_TD: Tensor, weight_FD: Tensor, kind: Kind, routed: bool = False) -> CudaTiling | None:
    """Return how a product is cut, rows of which may be `routed` next; None where Triton or the library serves."""
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16:
        return None
    (lines, depth), rows = weight_FD.shape, len(x_TD)
    cut = skinny_cut(lines, depth, rows, kind, routed) or wide_cut(lines, depth, rows, kind)
    if cut is None or not (TensorMap.takes(x_TD) and TensorMap.takes(weight_FD)):
        return None
    return cut if _usable(x_TD.device, cut) else None


def cuda_normed(
    normed: Normed, weight_FD: Tensor, eps: float, tiling: CudaTiling, out_TF: Tensor | None = None
) -> Tensor:
    """Return `norm @ weight.T`, or SwiGLU of it by a tiling of that kind, in `out_TF` where that is given."""
    outputs = len(weight_FD) // 2 if tiling.kind == Kind.GATED else len(weight_FD)
    ends = Ends.of(normed, outputs, out_TF)
    _launch(tiling, normed.rows_TD, weight_FD, ends, eps)
    return ends.out_TF


def cuda_gates(normed: Normed, weight_FD: Tensor, mixed_TF: Tensor, eps: float, tiling: CudaTiling) -> Tensor:
    """Multiply rows by the sigmoid of `norm @ weight.T`, in place."""
    ends = Ends(mixed_TF, beside_TF=mixed_TF, waits_T=normed.squares_T)
    _launch(tiling, normed.rows_TD, weight_FD, ends, eps)
    return mixed_TF


def cuda_added(
    x_TD: Tensor,
    weight_FD: Tensor,
    stream_TF: Tensor,
    norm_F: Tensor,
    squares_T: Tensor,
    offset: float,
    tiling: CudaTiling,
) -> tuple[Normed, Tensor]:
    """Return the begun norm of `stream + x @ weight.T`, and that sum; its squares are added to `squares_T`."""
    ends = Ends.of_sum(stream_TF, norm_F, squares_T)
    _launch(tiling, x_TD, weight_FD, ends, 0.0, offset)
    return ends.total


def _launch(tiling: CudaTiling, x_TD: Tensor, weight_FD: Tensor, ends: Ends, eps: float, offset: float = 0.0) -> None:
    if isinstance(tiling, PersistentTiling):
        launch(tiling, x_TD, weight_FD, (None, None), ends, eps, offset)
        return
    assert all(end is None or end.is_contiguous() for end in ends), "rows must be contiguous"
    (rows, depth), outputs = x_TD.shape, ends.out_TF.shape[1]
    # Few rows have a gate's lines beside those that it gates.
    described = InterleavedHalves if tiling.kind == Kind.GATED else TensorMap
    arguments = (TensorMap(x_TD, rows), described(weight_FD, tiling.box), *ends)
    _program(tiling).launch(tiling.grid(outputs), *arguments, rows, outputs, depth, 1.0 / depth, eps, offset)


def _program(tiling: CudaTiling) -> CudaProgram:
    return persistent_program(tiling) if isinstance(tiling, PersistentTiling) else skinny_program(tiling)


@kept
def _usable(device: torch.device, tiling: CudaTiling) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"products of up to {tiling.rows} rows do without CUDA C++"
    return compiles(device, otherwise, partial(_program, tiling))
