"""RMSNorm on the GPU, one program a row.

Bytes for T rows of width D and e bytes an element: 2 T D e; the weight is read from L2 after the first row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous


def rms_norm(x: Tensor, weight_D: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """Return `x / rms(x) * (weight + offset)` over the last dimension."""
    assert x.is_contiguous(), "rows must be contiguous"
    width, out = x.shape[-1], torch.empty_like(x)
    _rms_norm_kernel[(x.numel() // width,)](
        x, weight_D, out, width, eps,
        WIDTH_PAD=triton.next_power_of_2(width), WIDE=_wide(x), OFFSET=offset, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip
    return out


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
    x_ptr, weight_ptr, out_ptr, width, eps,
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
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / width + eps)
    tl.store(out_ptr + row * width + column, (wide * scale * weight).to(x.dtype), mask=inside)
