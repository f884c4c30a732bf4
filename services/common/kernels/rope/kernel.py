"""Head norm and rotary embedding on the GPU: what a kernel that stores heads does to them, and the tables' rows.

Bytes for T rows: 4 T D floats for the tables' rows, which every head of a row then finds in L2.
"""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.overlap import LAUNCH, PDL, allow_next, await_previous

GROUP = 8
"""Heads of a program: with one each, launching the programs would take longer than their work."""


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
