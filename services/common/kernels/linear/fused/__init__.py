"""Products of some hundred rows with what follows them in a block, in CUDA C++, with the bits of all other products.

Bytes for T rows: F D e of weights, once for each 128 or 256 rows, and T D e of rows for each band of lines. What a
launch behind the library's product reads and writes again, 2 T F e and more, stays in registers here.
"""

import logging
from functools import cache

import torch
from torch import Tensor

from services.common.kernels.cuda_program import TensorMap
from services.common.kernels.linear.fused.source import program_of
from services.common.kernels.linear.fused.tiling import FusedTiling, every_tiling, fused_cut
from services.common.kernels.linear.normed import Normed

__all__ = ["FusedTiling", "fused_added", "fused_gated", "fused_tiling"]

_HOPPER = (9, 0)
_log = logging.getLogger(__name__)


def fused_tiling(x_TD: Tensor, weight_FD: Tensor) -> FusedTiling | None:
    """Return how a product is cut; None where the library is the better choice, or the only one."""
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16:
        return None
    lines, depth = weight_FD.shape
    cut = fused_cut(lines, depth, len(x_TD))
    fits = cut is not None and TensorMap.takes(x_TD) and TensorMap.takes(weight_FD)
    return cut if fits and _usable(x_TD.device) else None


def fused_gated(normed: Normed, weight_FD: Tensor, eps: float, tiling: FusedTiling) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    x_TD, inner = normed.rows_TD, len(weight_FD) // 2
    out_TI = x_TD.new_empty((len(x_TD), inner))
    _launch(tiling, x_TD, weight_FD, inner, (out_TI, None, None, None, normed.squares_T, None), eps, 0.0)
    return out_TI


def fused_added(
    x_TD: Tensor,
    weight_FD: Tensor,
    stream_TF: Tensor,
    norm_F: Tensor,
    squares_T: Tensor,
    offset: float,
    tiling: FusedTiling,
) -> tuple[Normed, Tensor]:
    """Return the begun norm of `stream + x @ weight.T`, and that sum; its squares are added to `squares_T`."""
    total_TF, scaled_TF = torch.empty_like(stream_TF), torch.empty_like(stream_TF)
    ends = (total_TF, scaled_TF, stream_TF, norm_F, None, squares_T)
    _launch(tiling, x_TD, weight_FD, len(weight_FD), ends, 0.0, offset)
    return Normed(scaled_TF, squares_T), total_TF


def _launch(
    tiling: FusedTiling,
    x_TD: Tensor,
    weight_FD: Tensor,
    outputs: int,
    ends: tuple[Tensor | None, ...],
    eps: float,
    offset: float,
) -> None:
    assert all(end is None or end.is_contiguous() for end in ends), "rows must be contiguous"
    rows, depth = x_TD.shape
    maps = TensorMap(x_TD, tiling.rows), TensorMap(weight_FD, tiling.band)
    arguments = (*maps, *ends, rows, outputs, depth, 1.0 / depth, eps, offset)
    program_of(tiling).launch(tiling.grid(rows, outputs), *arguments)


@cache
def _usable(device: torch.device) -> bool:
    """Whether the GPU is of the measured kind and all kernels were compiled for it; what is not compiled is logged."""
    if torch.cuda.get_device_capability(device) != _HOPPER:
        return False
    try:
        for tiling in every_tiling():
            program_of(tiling)
    except (RuntimeError, ImportError, OSError) as error:
        _log.warning("products of some hundred rows go through the library: %s", error)
        return False
    return True
