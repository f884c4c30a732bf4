"""How the kernel of a tiling is launched."""

from functools import cache

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram, TensorMap
from services.common.kernels.linear.persistent.tiling import PersistentTiling


def source_of(tiling: PersistentTiling) -> Source:
    """Return what a compiler is given."""
    sizes = defined(
        rows=tiling.rows, band=tiling.band, subs=tiling.subs, stages=tiling.stages, share=tiling.share,
        across=tiling.across, wide=int(tiling.wide), kind=int(tiling.kind), grouped=int(tiling.grouped),
    )  # fmt: skip
    kind = "bf16" if tiling.wide else "e4m3" if tiling.grouped else "s8"
    instruction = wgmma("mma", tiling.lines, registers=False, kind=kind)
    return Source("linear/persistent/product.cu", sizes + instruction)


@kept
def program_of(tiling: PersistentTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)


def launch(
    tiling: PersistentTiling, x_TD: Tensor, weight_FD: Tensor, scales: tuple[Tensor | None, Tensor | None],
    ends: tuple[Tensor | None, ...], eps: float, offset: float,
) -> None:  # fmt: skip
    """Multiply bfloat16 rows, or rows of eight bits with `scales` of lines and rows, and end the product.

    `ends`: the results, rows of their norm, what stands beside, the norm, squares it waits for, and those added.
    """
    assert all(end is None or end.is_contiguous() for end in ends), "rows must be contiguous"
    rows, (lines, depth) = len(x_TD), weight_FD.shape
    height = tiling.height(rows)
    outputs, x, weight = lines // tiling.halves, _described(x_TD), _described(weight_FD)
    program_of(tiling).launch(
        tiling.grid(rows, outputs, _processors(x_TD.device)), TensorMap(x, height // tiling.across),
        TensorMap(weight, tiling.line_box), *scales, *ends, rows, height, outputs, x.shape[1], 1.0 / depth, eps, offset,
    )  # fmt: skip


def _described(matrix: Tensor) -> Tensor:
    """Take two numbers of eight bits for one of two bytes, which is what TMA is told of."""
    return matrix.view(torch.bfloat16) if matrix.element_size() == 1 else matrix


@cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
