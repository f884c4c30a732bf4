"""Head norm and rotary embedding on the GPU, for kernels that store heads, and the look-up of the tables' rows.

Bytes for T rows: 4 T D floats for the tables' rows, which every head of a row then finds in L2.
"""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight
from services.common.kernels.sums import root_scale, squares

GROUP = 8
"""Heads of a program. With one head each, launching the programs would take longer than their work."""


def table_rows(cos_PH: Tensor, sin_PH: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole rows [T, 1, 2 H] of some positions from halves; those past the tables take the last row."""
    places, half = cos_PH.shape
    shape = (len(positions_T), 1, 2 * half)
    positions_T = positions_T.contiguous()
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
def turn(low, high, norm_low, norm_high, cos, sin_low, eps, SIZE: tl.constexpr, NORM: tl.constexpr):
    """Return heads given as halves [H, M], H >= SIZE / 2 padded with zeros, rotated, and with NORM normalised first.

    One formula in one order, whoever calls it; the table's sine of a first half is the negative of its second's.
    """
    if NORM:
        if low.dtype == tl.float64:
            root = tl.rsqrt(tl.sum(low * low + high * high, 0) / SIZE + eps)[None, :]
        else:
            root = root_scale(tl.sum(squares(low) + squares(high), 0), 1.0 / SIZE, eps)[None, :]
        low, high = low * norm_low * root, high * norm_high * root
    return tl.fma(low, cos, high * sin_low), tl.fma(high, cos, -(low * sin_low))


@triton.jit
def turn_heads(
    x_ptr, target_ptr, head, fits, bias_ptr, weight_ptr, cos_ptr, sin_ptr, scale, eps,
    SIZE: tl.constexpr, HALF_PAD: tl.constexpr, WIDE: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Load heads [M] of one row, turn them as `turned_heads` does, and store them at targets [M]."""
    low, high, reads = turned_heads(
        x_ptr, head, fits, bias_ptr, weight_ptr, cos_ptr, sin_ptr, scale, eps, SIZE, HALF_PAD, WIDE, OFFSET
    )
    kind = x_ptr.dtype.element_ty
    target = target_ptr[None, :] + tl.arange(0, HALF_PAD)[:, None]
    tl.store(target, low.to(kind), mask=reads)
    tl.store(target + SIZE // 2, high.to(kind), mask=reads)


@triton.jit
def turned_heads(
    x_ptr, head, fits, bias_ptr, weight_ptr, cos_ptr, sin_ptr, scale, eps,
    SIZE: tl.constexpr, HALF_PAD: tl.constexpr, WIDE: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Load heads [M] of one row, divide by the row's norm, and turn them; return both halves, and where they are.

    Without `bias_ptr` nothing is added first; without `weight_ptr` heads have no norm; OFFSET is the norm's. Outside of
    a head halves are zero.
    """
    half = tl.arange(0, HALF_PAD)[:, None]
    inside = half < SIZE // 2
    reads = fits[None, :] & inside
    at = head[None, :] * SIZE + half
    low = load_heads(x_ptr, bias_ptr, at, reads, scale, WIDE)
    high = load_heads(x_ptr, bias_ptr, at + SIZE // 2, reads, scale, WIDE)
    norm_low, norm_high = 1.0, 1.0
    if weight_ptr is not None:
        norm_low = norm_weight(tl.load(weight_ptr + at, mask=reads, other=0.0).to(WIDE), OFFSET)
        norm_high = norm_weight(tl.load(weight_ptr + at + SIZE // 2, mask=reads, other=0.0).to(WIDE), OFFSET)
    cos = tl.load(cos_ptr + half, mask=inside, other=0.0).to(WIDE)
    sin_low = tl.load(sin_ptr + half, mask=inside, other=0.0).to(WIDE)
    low, high = turn(low, high, norm_low, norm_high, cos, sin_low, eps, SIZE, weight_ptr is not None)
    return low, high, reads


@triton.jit
def load_heads(x_ptr, bias_ptr, at, reads, scale, WIDE: tl.constexpr):
    """Return numbers of heads, divided by their row's norm, with their bias where there is one, in the wide type."""
    x = tl.load(x_ptr + at, mask=reads, other=0.0).to(WIDE) * scale
    if bias_ptr is not None:
        x += tl.load(bias_ptr + at, mask=reads, other=0.0).to(WIDE)
    return x
