"""Skinny matrix products on the GPU: at up to 16 rows the weight's bytes are the whole cost.

Bytes for T rows: F D e, read once; x [T, D] stays in L2. One program streams a band of outputs over its share of D. A
band with several shares is finished by the last of its programs, which adds the float32 sums in the order of the
shares: no second launch, and the same bits whichever program comes last. With more rows
cuBLAS wins, and serves.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.overlap import LAUNCH, PDL, allow_next, await_previous

_MOST_ROWS = 16
_WIDE_OUTPUT = 8192
_MOST_BANDS = 1 << 16
_counters: dict[torch.device, Tensor] = {}


class Tiling(NamedTuple):
    """How a product is cut: outputs and inputs of a tile, programs that share a band, and the pipeline's depth."""

    band: int
    depth: int
    shares: int
    stages: int = 4
    warps: int = 4


_MEASURED = {
    (6144, 2560): Tiling(64, 128, 1),  # 10.6 us
    (2560, 4096): Tiling(64, 128, 2),  # 8.9 us
    (19456, 2560): Tiling(64, 128, 1),  # 28.6 us
    (2560, 9728): Tiling(64, 128, 4),  # 16.2 us
}
"""The quickest cuts found on an H200, by outputs and depth; cuBLAS: 11.2, 10.5, 28.0, 18.2 us."""


def tiling(outputs: int, depth: int) -> Tiling:
    """Return the cut of a weight [outputs, depth]."""
    if depth <= 128:
        return Tiling(32, 128, 1)
    return _MEASURED.get((outputs, depth)) or Tiling(64, 128, 1 if outputs >= _WIDE_OUTPUT else 2)


def linear(x_TD: Tensor, weight_FD: Tensor, cut: Tiling | None = None) -> Tensor:
    """Return `x @ weight.T`."""
    rows, depth = x_TD.shape
    if rows > _MOST_ROWS or x_TD.dtype == torch.float64:
        return F.linear(x_TD, weight_FD)
    outputs = len(weight_FD)
    cut = cut or tiling(outputs, depth)
    assert weight_FD.stride(1) == 1, "the kernel reads a weight along its inputs"
    device = x_TD.device
    out_TF = torch.empty((rows, outputs), dtype=x_TD.dtype, device=device)
    bands = triton.cdiv(outputs, cut.band)
    sums = torch.empty((cut.shares, rows, outputs), dtype=torch.float32, device=device) if cut.shares > 1 else out_TF
    _linear_kernel[(bands, cut.shares)](
        x_TD.contiguous(), weight_FD, out_TF, sums, _counter(device), rows, outputs, depth, weight_FD.stride(0),
        ROWS=_MOST_ROWS, BAND=cut.band, DEPTH=cut.depth, SHARES=cut.shares,
        EVEN=depth % (cut.depth * cut.shares) == 0 and outputs % cut.band == 0, PDL=PDL, num_warps=cut.warps,
        num_stages=cut.stages, **LAUNCH,
    )  # fmt: skip
    return out_TF


def _counter(device: torch.device) -> Tensor:
    """Zeros, one for each band; a launch leaves them as it found them."""
    if device not in _counters:
        _counters[device] = torch.zeros(_MOST_BANDS, dtype=torch.int32, device=device)
    return _counters[device]


@triton.jit
def _weight_tile(weight_ptr, output, column, outputs, end, stride, EVEN: tl.constexpr):
    at = weight_ptr + output.to(tl.int64)[:, None] * stride + column[None, :]
    inside = EVEN | ((output < outputs)[:, None] & (column < end)[None, :])
    return tl.load(at) if EVEN else tl.load(at, mask=inside, other=0.0)


@triton.jit
def _x_tile(x_ptr, row, column, rows, depth, EVEN: tl.constexpr):
    at = x_ptr + row[None, :] * depth + column[:, None]
    inside = (row < rows)[None, :] if EVEN else (row < rows)[None, :] & (column < depth)[:, None]
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
def _linear_kernel(
    x_ptr, weight_ptr, out_ptr, sums_ptr, counter_ptr, rows, outputs, depth, stride,
    ROWS: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, SHARES: tl.constexpr, EVEN: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    output = tl.program_id(0) * BAND + tl.arange(0, BAND)
    row = tl.arange(0, ROWS)
    share = tl.cdiv(tl.cdiv(depth, SHARES), DEPTH) * DEPTH
    begin = tl.program_id(1) * share
    end = tl.minimum(begin + share, depth)
    await_previous(PDL)
    # The weight is the left operand: its band fills the matrix units' 64 rows, which 16 rows of x would not.
    total = tl.zeros((BAND, ROWS), dtype=tl.float32)
    for first in range(begin, end, DEPTH):
        column = first + tl.arange(0, DEPTH)
        weight = _weight_tile(weight_ptr, output, column, outputs, end, stride, EVEN)
        total = tl.dot(weight, _x_tile(x_ptr, row, column, rows, depth, EVEN), total, input_precision="ieee")
    allow_next(PDL)
    target = row[None, :] * outputs + output[:, None]
    fits = (row < rows)[None, :] & (output < outputs)[:, None]
    if SHARES == 1:
        tl.store(out_ptr + target, total.to(out_ptr.dtype.element_ty), mask=fits)
    else:
        tl.store(sums_ptr + tl.program_id(1) * rows * outputs + target, total, mask=fits)
        tl.debug_barrier()
        arrived = tl.atomic_add(counter_ptr + tl.program_id(0), 1, sem="acq_rel")
        if arrived == SHARES - 1:
            total = tl.zeros((BAND, ROWS), dtype=tl.float32)
            for other in tl.static_range(SHARES):
                at = sums_ptr + other * rows * outputs + target
                total += tl.load(at, mask=fits, other=0.0, cache_modifier=".cg")
            tl.store(out_ptr + target, total.to(out_ptr.dtype.element_ty), mask=fits)
            tl.store(counter_ptr + tl.program_id(0), 0)
