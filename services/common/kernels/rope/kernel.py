"""Head norm and rotary embedding on the GPU, one program per row and head.

Bytes for T rows, H heads: 2 T H D e, plus T D floats twice for the tables' rows, which every head of a row finds in L2.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.rope.tables import Rotation


def norm_rope(x_THD: Tensor, weight_HD: Tensor, rotation: Rotation, eps: float) -> Tensor:
    """Normalise every head of every row, scale by its weight, rotate to the row's position."""
    assert x_THD.stride(2) == 1, "a head's elements must be adjacent"
    count, heads, size = x_THD.shape
    out_THD = torch.empty((count, heads, size), dtype=x_THD.dtype, device=x_THD.device)
    wide = tl.float64 if x_THD.dtype == torch.float64 else tl.float32
    _norm_rope_kernel[(count, heads)](
        x_THD, weight_HD, rotation.cos_T1D, rotation.sin_T1D, out_THD, x_THD.stride(0), x_THD.stride(1), heads, eps,
        SIZE=size, SIZE_PAD=triton.next_power_of_2(size), WIDE=wide, num_warps=1,
    )  # fmt: skip
    return out_THD


@triton.jit
def turn_head(
    x_ptr, weight_ptr, cos_ptr, sin_ptr, eps, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """Load one head of one row; return it normalised, scaled and rotated, in the wide type."""
    column = tl.arange(0, SIZE_PAD)
    inside = column < SIZE
    other = tl.where(column < SIZE // 2, column + SIZE // 2, column - SIZE // 2)
    x = tl.load(x_ptr + column, mask=inside, other=0.0).to(WIDE)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / SIZE + eps)
    straight = x * tl.load(weight_ptr + column, mask=inside, other=0.0).to(WIDE)
    crossed = tl.load(x_ptr + other, mask=inside, other=0.0).to(WIDE)
    crossed *= tl.load(weight_ptr + other, mask=inside, other=0.0).to(WIDE)
    cos = tl.load(cos_ptr + column, mask=inside, other=0.0).to(WIDE)
    sin = tl.load(sin_ptr + column, mask=inside, other=0.0).to(WIDE)
    return (straight * cos + crossed * sin) * scale


@triton.jit
def _norm_rope_kernel(
    x_ptr, weight_ptr, cos_ptr, sin_ptr, out_ptr, stride_row, stride_head, heads, eps,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    turned = turn_head(
        x_ptr + row * stride_row + head * stride_head, weight_ptr + head * SIZE,
        cos_ptr + row * SIZE, sin_ptr + row * SIZE, eps, SIZE, SIZE_PAD, WIDE,
    )  # fmt: skip
    column = tl.arange(0, SIZE_PAD)
    out = out_ptr + (row * heads + head) * SIZE + column
    tl.store(out, turned.to(out_ptr.dtype.element_ty), mask=column < SIZE)
