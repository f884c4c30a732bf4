"""Head norm and rotary embedding on the GPU, one program per row and group of heads.

Bytes for T rows, H heads: 2 T H D e, plus T D floats twice for the tables' rows, which every head of a row finds in L2.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.overlap import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rope.tables import Rotation

GROUP = 8
"""Heads of a program: with one each, launching the programs would take longer than their work."""


def norm_rope(x_THD: Tensor, weight_HD: Tensor, rotation: Rotation, eps: float) -> Tensor:
    """Normalise every head of every row, scale by its weight, rotate to the row's position."""
    assert x_THD.stride(2) == 1, "a head's elements must be adjacent"
    count, heads, size = x_THD.shape
    out_THD = torch.empty((count, heads, size), dtype=x_THD.dtype, device=x_THD.device)
    wide = tl.float64 if x_THD.dtype == torch.float64 else tl.float32
    _norm_rope_kernel[(count, triton.cdiv(heads, GROUP))](
        x_THD, weight_HD, rotation.cos_T1D, rotation.sin_T1D, out_THD, x_THD.stride(0), x_THD.stride(1), heads, eps,
        GROUP=GROUP, SIZE=size, SIZE_PAD=triton.next_power_of_2(size), WIDE=wide,
    )  # fmt: skip
    return out_THD


def table_rows(cos_PH: Tensor, sin_PH: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole rows [T, 1, 2 H] of some positions from halves; those past the tables take the last row."""
    places, half = cos_PH.shape
    shape = (len(positions_T), 1, 2 * half)
    cos_T1D, sin_T1D = cos_PH.new_empty(shape), sin_PH.new_empty(shape)
    _table_kernel[(len(positions_T),)](
        cos_PH, sin_PH, positions_T, cos_T1D, sin_T1D, places, half,
        HALF_PAD=triton.next_power_of_2(half), PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip
    return cos_T1D, sin_T1D


@triton.jit
def _table_kernel(
    cos_ptr, sin_ptr, positions_ptr, cos_out_ptr, sin_out_ptr, places, half,
    HALF_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, HALF_PAD)
    inside = column < half
    allow_next(PDL)
    await_previous(PDL)
    at = tl.minimum(tl.load(positions_ptr + row), places - 1).to(tl.int64) * half + column
    cos, sin = tl.load(cos_ptr + at, mask=inside), tl.load(sin_ptr + at, mask=inside)
    out = row * 2 * half + column
    tl.store(cos_out_ptr + out, cos, mask=inside)
    tl.store(cos_out_ptr + out + half, cos, mask=inside)
    tl.store(sin_out_ptr + out, -sin, mask=inside)
    tl.store(sin_out_ptr + out + half, sin, mask=inside)


@triton.jit
def turn_heads(
    x_ptr, head, fits, stride_head, weight_ptr, cos_ptr, sin_ptr, eps,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Load heads [G] of one row; return them normalised, scaled and rotated [G, SIZE_PAD], in the wide type."""
    column = tl.arange(0, SIZE_PAD)
    inside = column < SIZE
    other = tl.where(column < SIZE // 2, column + SIZE // 2, column - SIZE // 2)
    reads = fits[:, None] & inside[None, :]
    from_, of = head[:, None] * stride_head, head[:, None] * SIZE
    x = tl.load(x_ptr + from_ + column[None, :], mask=reads, other=0.0).to(WIDE)
    scale = tl.rsqrt(tl.sum(x * x, 1) / SIZE + eps)
    straight = x * tl.load(weight_ptr + of + column[None, :], mask=reads, other=0.0).to(WIDE)
    crossed = tl.load(x_ptr + from_ + other[None, :], mask=reads, other=0.0).to(WIDE)
    crossed *= tl.load(weight_ptr + of + other[None, :], mask=reads, other=0.0).to(WIDE)
    cos = tl.load(cos_ptr + column, mask=inside, other=0.0).to(WIDE)
    sin = tl.load(sin_ptr + column, mask=inside, other=0.0).to(WIDE)
    return (straight * cos[None, :] + crossed * sin[None, :]) * scale[:, None]


@triton.jit
def _norm_rope_kernel(
    x_ptr, weight_ptr, cos_ptr, sin_ptr, out_ptr, stride_row, stride_head, heads, eps,
    GROUP: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE_PAD)
    head = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    fits = head < heads
    turned = turn_heads(
        x_ptr + row * stride_row, head, fits, stride_head, weight_ptr, cos_ptr + row * SIZE, sin_ptr + row * SIZE,
        eps, SIZE, SIZE_PAD, WIDE,
    )  # fmt: skip
    out = out_ptr + (row * heads + head[:, None]) * SIZE + column[None, :]
    tl.store(out, turned.to(out_ptr.dtype.element_ty), mask=fits[:, None] & (column < SIZE)[None, :])
