"""Stores what rows of a head read, and in a launch of its own norms and gates it."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.gated_delta.block import normed
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def store_read(
    out, out_ptr, sequence, head, first_row, reach_row, column,
    HEADS: tl.constexpr, V_DIM: tl.constexpr, width,
):  # fmt: skip
    """Store 16 rows of the span from `first_row` on, which may lie before it; rows from `reach_row` on read zero."""
    row = first_row + tl.arange(0, 16)
    real, inside = (row >= 0) & (row < reach_row), (row >= 0) & (row < width)
    to_ptr = out_ptr + (sequence * width + row)[None, :] * (HEADS * V_DIM) + head * V_DIM + column[:, None]
    tl.store(to_ptr, tl.where(real[None, :], out, 0.0), mask=inside[None, :])


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
