"""Products of up to 32 rows with what follows them in a block, in CUDA C++, with the bits of all other products.

Bytes for T rows: F D e of weights, read once, and T D e of rows for each CTA, in L2. The first weights are on their way
while the kernel before drains: so memory does not idle between two products.
"""

import logging
from functools import cache

import torch
from torch import Tensor

from services.common.kernels.cuda_program import DriverError, InterleavedHalves, TensorMap
from services.common.kernels.linear.normed import Normed
from services.common.kernels.linear.skinny.source import program_of
from services.common.kernels.linear.skinny.tiling import Kind, SkinnyTiling, skinny_cut

__all__ = ["Kind", "SkinnyTiling", "skinny_added", "skinny_gated", "skinny_gates", "skinny_normed", "skinny_tiling"]

_HOPPER = (9, 0)
_log = logging.getLogger(__name__)


def skinny_tiling(x_TD: Tensor, weight_FD: Tensor, kind: Kind) -> SkinnyTiling | None:
    """Return how a product is cut; None where the programs in Triton serve."""
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16:
        return None
    lines, depth = weight_FD.shape
    cut = skinny_cut(lines, depth, len(x_TD), kind)
    if cut is None or not (TensorMap.takes(x_TD) and TensorMap.takes(weight_FD)):
        return None
    return cut if _usable(x_TD.device, cut) else None


def skinny_normed(
    normed: Normed, weight_FD: Tensor, eps: float, tiling: SkinnyTiling, out_TF: Tensor | None = None
) -> Tensor:
    """Return `norm @ weight.T`, in `out_TF` where that is given."""
    x_TD, outputs = normed.rows_TD, len(weight_FD)
    if out_TF is None:
        out_TF = x_TD.new_empty((len(x_TD), outputs))
    _launch(tiling, x_TD, weight_FD, outputs, (out_TF, None, None, None, normed.squares_T, None), eps, 0.0)
    return out_TF


def skinny_gated(normed: Normed, weight_FD: Tensor, eps: float, tiling: SkinnyTiling) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`."""
    x_TD, inner = normed.rows_TD, len(weight_FD) // 2
    out_TI = x_TD.new_empty((len(x_TD), inner))
    _launch(tiling, x_TD, weight_FD, inner, (out_TI, None, None, None, normed.squares_T, None), eps, 0.0)
    return out_TI


def skinny_gates(normed: Normed, weight_FD: Tensor, mixed_TF: Tensor, eps: float, tiling: SkinnyTiling) -> Tensor:
    """Multiply rows by the sigmoid of `norm @ weight.T`, in place."""
    ends = (mixed_TF, None, mixed_TF, None, normed.squares_T, None)
    _launch(tiling, normed.rows_TD, weight_FD, len(weight_FD), ends, eps, 0.0)
    return mixed_TF


def skinny_added(
    x_TD: Tensor,
    weight_FD: Tensor,
    stream_TF: Tensor,
    norm_F: Tensor,
    squares_T: Tensor,
    offset: float,
    tiling: SkinnyTiling,
) -> tuple[Normed, Tensor]:
    """Return the begun norm of `stream + x @ weight.T`, and that sum; its squares are added to `squares_T`."""
    total_TF, scaled_TF = torch.empty_like(stream_TF), torch.empty_like(stream_TF)
    ends = (total_TF, scaled_TF, stream_TF, norm_F, None, squares_T)
    _launch(tiling, x_TD, weight_FD, len(weight_FD), ends, 0.0, offset)
    return Normed(scaled_TF, squares_T), total_TF


def _launch(
    tiling: SkinnyTiling,
    x_TD: Tensor,
    weight_FD: Tensor,
    outputs: int,
    ends: tuple[Tensor | None, ...],
    eps: float,
    offset: float,
) -> None:
    assert all(end is None or end.is_contiguous() for end in ends), "rows must be contiguous"
    rows, depth = x_TD.shape
    gated = tiling.kind == Kind.GATED
    weights = InterleavedHalves(weight_FD, tiling.lines) if gated else TensorMap(weight_FD, tiling.lines)
    arguments = (TensorMap(x_TD, tiling.rows), weights, *ends, rows, outputs, depth, 1.0 / depth, eps, offset)
    program_of(tiling).launch(tiling.grid(outputs), *arguments)


@cache
def _usable(device: torch.device, tiling: SkinnyTiling) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    if torch.cuda.get_device_capability(device) != _HOPPER:
        return False
    try:
        program_of(tiling)
    except (DriverError, ImportError, OSError) as error:
        _log.warning("products of up to %d rows go through Triton: %s", tiling.rows, error)
        return False
    return True
