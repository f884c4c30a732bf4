"""Stores what rows of a head read: normed and gated, or as it is for a launch of its own that norms it."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import from_squares, sigmoid, squares
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def normed(out, z, weight, eps, V_DIM: tl.constexpr):
    """Return rows of a head divided by their root mean square, times the norm's weight and SiLU of z."""
    scale = tl.rsqrt(from_squares(squares(out)) * (1.0 / V_DIM) + eps)
    return out * scale[:, None] * weight[None, :] * (z * sigmoid(z))


@triton.jit
def gated_by(
    into_ptr, norm_ptr, sequence, head, first_row, reach_row, column, width,
    V_DIM: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """Return what `store_read` gates rows by, and the norm's weight; asked for before a product, it comes meanwhile."""
    z, weight = 0.0, 0.0
    if NORMED:
        line = tl.arange(0, 32)
        row = first_row + line - 16
        real = (line >= 16) & (row >= 0) & (row < width) & (row < reach_row)
        z_ptr = into_ptr + (sequence * width + row)[:, None] * FEATURES + KEPT + head * V_DIM + column[None, :]
        z = tl.load(z_ptr, mask=real[:, None], other=0.0)
        weight = tl.load(norm_ptr + column)
    return z, weight


@triton.jit
def store_read(
    found, z, weight, out_ptr, eps, sequence, head, first_row, reach_row, column,
    HEADS: tl.constexpr, V_DIM: tl.constexpr, NORMED: tl.constexpr, width,
):  # fmt: skip
    """Store the last 16 columns of what was found, rows of the span from `first_row` on, if rows to store begin there.

    Rows before the span are left out, and rows from `reach_row` on read zero.
    """
    if first_row > -16:
        line = tl.arange(0, 32)
        row = first_row + line - 16
        inside = (line >= 16) & (row >= 0) & (row < width)
        real, flat = inside & (row < reach_row), sequence * width + row
        out = tl.where(real[None, :], found, 0.0)
        if NORMED:
            out = tl.trans(out)
            out = tl.trans(normed(out, z.to(tl.float32), weight.to(tl.float32), eps, V_DIM))
        to_ptr = out_ptr + flat[None, :] * (HEADS * V_DIM) + head * V_DIM + column[:, None]
        tl.store(to_ptr, out.to(out_ptr.dtype.element_ty), mask=inside[None, :])


@triton.jit(do_not_specialize=["width"])
def norm_kernel(
    read_ptr, into_ptr, norm_ptr, valid_ptr, out_ptr, width, eps,
    HEADS: tl.constexpr, V_DIM: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norm what rows of a head read, and gate it; grid (row tiles, Hv, B)."""
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    column, row = tl.arange(0, V_DIM), tile * ROWS + tl.arange(0, ROWS)
    reach_row = width
    if valid_ptr is not None:
        reach_row = tl.load(valid_ptr + sequence).to(tl.int32)
    real, flat = (row < reach_row)[:, None], (sequence * width + row)[:, None]
    weight = tl.load(norm_ptr + column).to(tl.float32)
    # Whoever wrote `into` was waited for by the kernel before this one, which then let this one start.
    z_ptr = into_ptr + flat * FEATURES + KEPT + head * V_DIM + column[None, :]
    z = tl.load(z_ptr, mask=real, other=0.0).to(tl.float32)
    await_previous(PDL)
    allow_next(PDL)
    place = flat * (HEADS * V_DIM) + head * V_DIM + column[None, :]
    out = normed(tl.load(read_ptr + place, mask=real, other=0.0), z, weight, eps, V_DIM)
    out = tl.where(real, out, 0.0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + place, out, mask=(row < width)[:, None])
