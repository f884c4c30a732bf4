"""Products by weights of eight bits in CUDA C++ (`persistent/`), with the bits of those in Triton."""

from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import TensorMap, compiles
from services.common.kernels.linear.cuda import Ends, Kind
from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.persistent.eight import eight_cut
from services.common.kernels.linear.persistent.launch import launch, program_of
from services.common.kernels.linear.persistent.tiling import PersistentTiling


def eight_tiling(x_TD: Tensor, weight: Int8Weight, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where the programs in Triton serve."""
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16:
        return None
    tiling = eight_cut(*weight.shape, len(x_TD), kind)
    if tiling is None or not TensorMap.takes(weight.whole_FD):
        return None
    return tiling if _usable(x_TD.device, tiling) else None


def multiply(
    tiling: PersistentTiling, rows: tuple[Tensor, Tensor], weight: Int8Weight, ends: Ends, eps: float,
    offset: float = 0.0,
) -> None:  # fmt: skip
    """Multiply whole `rows`, which come with their scales, and end the product."""
    whole_TD, scale_T = rows
    launch(tiling, whole_TD, weight.whole_FD, (weight.scale_F, scale_T), ends, eps, offset)


@kept
def _usable(device: torch.device, tiling: PersistentTiling) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"products of eight bits in tiles of {tiling.rows} rows do without CUDA C++"
    return compiles(device, otherwise, partial(program_of, tiling))
