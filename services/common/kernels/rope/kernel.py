"""Head norm and rotary embedding on the GPU, for kernels that store heads, and the look-up of the tables' rows.

Bytes for T rows: 4 T D floats for the tables' rows, which every head of a row then finds in L2.
"""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight

GROUP = 8
"""Heads of a program. With one head each, launching the programs would take longer than their work."""


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
    x_ptr, head, fits, bias_ptr, weight_ptr, cos_ptr, sin_ptr, eps,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, WIDE: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Load heads [G] of one row; return them normalised, scaled and rotated [G, SIZE_PAD], in the wide type.

    Without `bias_ptr` nothing is added first; without `weight_ptr` there is no norm; OFFSET is the norm's.
    """
    column = tl.arange(0, SIZE_PAD)
    inside = column < SIZE
    other = tl.where(column < SIZE // 2, column + SIZE // 2, column - SIZE // 2)
    reads = fits[:, None] & inside[None, :]
    of, scale = head[:, None] * SIZE, 1.0
    straight = load_heads(x_ptr, bias_ptr, of, column, reads, WIDE)
    if weight_ptr is not None:
        scale = tl.rsqrt(tl.sum(straight * straight, 1) / SIZE + eps)[:, None]
        straight *= norm_weight(tl.load(weight_ptr + of + column[None, :], mask=reads, other=0.0).to(WIDE), OFFSET)
    crossed = load_heads(x_ptr, bias_ptr, of, other, reads, WIDE)
    if weight_ptr is not None:
        crossed *= norm_weight(tl.load(weight_ptr + of + other[None, :], mask=reads, other=0.0).to(WIDE), OFFSET)
    cos = tl.load(cos_ptr + column, mask=inside, other=0.0).to(WIDE)
    sin = tl.load(sin_ptr + column, mask=inside, other=0.0).to(WIDE)
    turned = straight * cos[None, :] + crossed * sin[None, :]
    if weight_ptr is not None:
        turned *= scale
    return turned


@triton.jit
def load_heads(x_ptr, bias_ptr, of, column, reads, WIDE: tl.constexpr):
    """Return columns of the heads that begin at `of` [G, 1], with their bias where there is one, in the wide type."""
    x = tl.load(x_ptr + of + column[None, :], mask=reads, other=0.0)
    if bias_ptr is not None:
        # Rounded as a separate addition would round it.
        bias = tl.load(bias_ptr + of + column[None, :], mask=reads, other=0.0)
        x = (x.to(WIDE) + bias.to(WIDE)).to(x.dtype)
    return x.to(WIDE)
