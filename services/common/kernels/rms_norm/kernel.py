"""RMSNorm on the GPU, one program a row.

Bytes for T rows of width D and e bytes an element: 2 T D e; the weight is read from L2 after the first row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.normed import Normed
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.sums import root_scale, squares


def rms_norm(x: Tensor, weight_D: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """Return `x / rms(x) * (weight + offset)` over the last dimension."""
    assert x.is_contiguous(), "rows must be contiguous"
    width, out = x.shape[-1], torch.empty_like(x)
    _rms_norm_kernel[(x.numel() // width,)](
        x, weight_D, out, width, 1.0 / width, eps,
        WIDTH_PAD=triton.next_power_of_2(width), WIDE=_wide(x), OFFSET=offset, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip
    return out


def begin_norm(
    x_TD: Tensor,
    stream_TD: Tensor,
    total_TD: Tensor,
    weight_D: Tensor,
    squares_T: Tensor,
    eps: float,
    offset: float = 0.0,
) -> Normed:
    """Store `stream + x`, store its squares, and return its norm as the next product takes it.

    Rows of float64 are divided at once: their products all go through the library.
    """
    assert x_TD.is_contiguous(), "rows must be contiguous"
    assert stream_TD.is_contiguous(), "rows must be contiguous"
    if x_TD.dtype == torch.float64:
        return Normed(rms_norm(torch.add(x_TD, stream_TD, out=total_TD), weight_D, eps, offset))
    rows, width = x_TD.shape
    scaled_TD = torch.empty_like(x_TD)
    _begin_norm_kernel[(rows,)](
        x_TD, stream_TD, total_TD, weight_D, scaled_TD, squares_T, width,
        WIDTH_PAD=triton.next_power_of_2(width), OFFSET=offset, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip
    return Normed(scaled_TD, squares_T)


def _wide(x: Tensor) -> tl.dtype:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


@triton.jit
def norm_weight(weight, OFFSET: tl.constexpr):
    """Return the factor of a norm, made of its stored weight in the wide type."""
    if OFFSET != 0.0:
        weight += OFFSET
    return weight


@triton.jit
def _rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, width, inverse_width, eps,
    WIDTH_PAD: tl.constexpr, WIDE: tl.constexpr, OFFSET: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH_PAD)
    inside = column < width
    allow_next(PDL)
    weight = norm_weight(tl.load(weight_ptr + column, mask=inside, other=0.0).to(WIDE), OFFSET)
    await_previous(PDL)
    x = tl.load(x_ptr + row * width + column, mask=inside, other=0.0)
    wide = x.to(WIDE)
    if tl.float64 == WIDE:
        scale = tl.rsqrt(tl.sum(wide * wide, 0) / width + eps)
    else:
        scale = root_scale(tl.sum(squares(wide), 0), inverse_width, eps)
    tl.store(out_ptr + row * width + column, (wide * scale * weight).to(x.dtype), mask=inside)


@triton.jit
def _begin_norm_kernel(
    x_ptr, stream_ptr, total_ptr, weight_ptr, scaled_ptr, squares_ptr, width,
    WIDTH_PAD: tl.constexpr, OFFSET: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH_PAD)
    inside = column < width
    allow_next(PDL)
    weight = norm_weight(tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32), OFFSET)
    await_previous(PDL)
    x = tl.load(x_ptr + row * width + column, mask=inside, other=0.0)
    stream = tl.load(stream_ptr + row * width + column, mask=inside, other=0.0)
    total = (x.to(tl.float32) + stream.to(tl.float32)).to(x.dtype)
    tl.store(total_ptr + row * width + column, total, mask=inside)
    wide = total.to(tl.float32)
    tl.store(scaled_ptr + row * width + column, (wide * weight).to(x.dtype), mask=inside)
    tl.store(squares_ptr + row, tl.sum(squares(wide), 0))
