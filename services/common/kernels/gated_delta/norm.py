"""Writes what rows of a head read: gated and normed where a program has the head's columns, as read otherwise."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.gated_delta.block import normed
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def store_read(
    out, out_ptr, into_ptr, norm_ptr, sequence, head, first_row, reach_row, column, eps,
    HEADS: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    NORMED: tl.constexpr,
):  # fmt: skip
    """Store 16 rows of the span from `first_row` on, which may lie before it; rows from `reach_row` on read zero."""
    row = first_row + tl.arange(0, 16)
    flat = sequence * WIDTH + row
    real, inside = (row >= 0) & (row < reach_row), (row >= 0) & (row < WIDTH)
    if NORMED:
        z_ptr = into_ptr + flat[:, None] * FEATURES + KEPT + head * V_DIM + column[None, :]
        z = tl.load(z_ptr, mask=real[:, None], other=0.0).to(tl.float32)
        weight = tl.load(norm_ptr + column).to(tl.float32)
        out = normed(out, z, weight, eps, V_DIM)
    out = tl.where(real[:, None], out, 0.0)
    to_ptr = out_ptr + flat[:, None] * (HEADS * V_DIM) + head * V_DIM + column[None, :]
    tl.store(to_ptr, out.to(out_ptr.dtype.element_ty), mask=inside[:, None])


@triton.jit
def norm_kernel(
    read_ptr, into_ptr, norm_ptr, lengths_ptr, valid_ptr, out_ptr, eps,
    HEADS: tl.constexpr, V_DIM: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr, KEPT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Norm and gate what 16 rows of a head read; grid (row tiles, Hv, B)."""
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    column, row = tl.arange(0, V_DIM), tile * 16 + tl.arange(0, 16)
    reach_row = WIDTH
    if valid_ptr is not None:
        reach_row = tl.load(valid_ptr + sequence).to(tl.int32)
    await_previous(PDL)
    allow_next(PDL)
    from_ptr = read_ptr + ((sequence * WIDTH + row)[:, None] * HEADS + head) * V_DIM + column[None, :]
    out = tl.load(from_ptr, mask=(row < reach_row)[:, None], other=0.0)
    store_read(
        out, out_ptr, into_ptr, norm_ptr, sequence, head, tile * 16, reach_row, column, eps,
        HEADS, V_DIM, WIDTH, FEATURES, KEPT, True,
    )  # fmt: skip
