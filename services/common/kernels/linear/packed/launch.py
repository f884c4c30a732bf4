"""Which products by packed weights a kernel in CUDA C++ serves, and how it is launched."""

from functools import cache, partial

import torch
from torch import Tensor

from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram, DeepBoxes, InterleavedHalves, TensorMap, compiles
from services.common.kernels.linear.cuda import Ends, Kind
from services.common.kernels.linear.packed.tiling import EIGHT, GROUP, PackedTiling, packed_cut
from services.common.kernels.linear.packed_weight import PackedWeight


def source_of(tiling: PackedTiling) -> Source:
    """Return what a compiler is given."""
    build = defined(
        x_rows=tiling.rows, tile_lines=tiling.lines, band=tiling.band, subs=tiling.subs, stages=tiling.stages,
        ctas=tiling.ctas, warps=tiling.warps, cluster=tiling.cluster, bits=tiling.bits,
        fine=int(tiling.fine), short=int(tiling.short), fused=int(tiling.fused), wide=1, kind=int(tiling.kind),
    )  # fmt: skip
    return Source("linear/packed/left.cu", build + wgmma("mma", tiling.rows, registers=True))


@cache
def program_of(tiling: PackedTiling) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(tiling), "product", tiling.threads, tiling.shared_bytes)


def takes_codes(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products are by codes there: on an H100 or H200, in bfloat16."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return False
    least = packed_cut(EIGHT, GROUP, 1, Kind.PLAIN, 1, False, True)
    return least is not None and _usable(device, least)


def packed_tiling(x_TD: Tensor, weight: PackedWeight, kind: Kind) -> PackedTiling | None:
    """Return how a product is cut; None where the widened weight serves."""
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16 or not TensorMap.takes(x_TD):
        return None
    groups, fine = len(weight.scale_GL), 1 << weight.shift < EIGHT
    cut = packed_cut(*weight.shape, len(x_TD), kind, groups, fine, weight.short, weight.bits)
    cut = cut and cut._replace(fused=weight.fused)
    return cut if cut and _usable(x_TD.device, cut) else None


def multiply(tiling: PackedTiling, x_TD: Tensor, weight: PackedWeight, ends: Ends, eps: float, offset: float) -> None:
    """Multiply rows and end the product."""
    assert all(end is None or end.is_contiguous() for end in ends), "rows must be contiguous"
    rows, (lines, depth) = len(x_TD), weight.shape
    # TMA is told of two codes as one number of two bytes.
    codes_FB = weight.codes_FB.view(torch.bfloat16)
    x_map, weight_map = _maps(tiling, x_TD, codes_FB)
    scales = len(weight.scale_GL), weight.scale_GL.shape[1], weight.shift
    program_of(tiling).launch(
        tiling.grid(lines),
        x_map,
        weight_map,
        weight.scale_GL,
        *ends,
        rows,
        ends.out_TF.shape[1],
        depth,
        *scales,
        1.0 / depth,
        eps,
        offset,
    )


def _maps(tiling: PackedTiling, x_TD: Tensor, codes_FB: Tensor) -> tuple[TensorMap, TensorMap]:
    """Return the boxes of rows and of codes: of a whole stage, but as `Loader` says."""
    alone, gated = tiling.cluster == 1, tiling.kind == Kind.GATED
    x_map = DeepBoxes(x_TD, tiling.rows, tiling.subs * tiling.depth // 64) if alone else TensorMap(x_TD, tiling.row_box)
    if alone and not gated:
        return x_map, DeepBoxes(codes_FB, tiling.lines, tiling.subs)
    return x_map, (InterleavedHalves if gated else TensorMap)(codes_FB, tiling.lines)


@cache
def _usable(device: torch.device, tiling: PackedTiling) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    return compiles(device, f"packed products of {tiling.rows} rows are widened", partial(program_of, tiling))
