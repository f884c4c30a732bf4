"""Grouped dynamic convolution on the GPU, one program per row and tile of columns, or per row where its norm follows.

Bytes for T rows, D columns, K taps: (2 + K) T D e with a stream, each row read K times; T D e more with the norm.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight
from services.common.kernels.sums import root_scale, squares

_TILE = 1024


def block_conv(rows_BWD: Tensor, delta_BWKG: Tensor, base_KD: Tensor, stream_BWD: Tensor | None = None) -> Tensor:
    """Return `sum over k of (base[k] + delta[.., k, group]) * rows[.., row - k]` [B, W, D], and a stream added.

    `delta_BWKG` may be a part of a wider tensor; its taps and groups lie close together.
    """
    taps, groups = _checked(rows_BWD, delta_BWKG, base_KD)
    batch, width, columns = rows_BWD.shape
    out_BWD = torch.empty_like(rows_BWD)
    _block_conv_kernel[(batch * width, triton.cdiv(columns, _TILE))](
        rows_BWD, delta_BWKG, base_KD, stream_BWD, out_BWD, columns, width, delta_BWKG.stride(1), columns // groups,
        groups, TAPS=taps, TILE=_TILE, WIDE=_wide(rows_BWD), PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return out_BWD


def block_conv_normed(
    rows_BWD: Tensor, delta_BWKG: Tensor, base_KD: Tensor, stream_BWD: Tensor, norm_D: Tensor, eps: float,
    offset: float = 0.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return `block_conv` with the stream added, and the RMSNorm of that: two launches would take longer than bytes."""
    taps, groups = _checked(rows_BWD, delta_BWKG, base_KD)
    batch, width, columns = rows_BWD.shape
    out_BWD, normed_BWD = torch.empty_like(rows_BWD), torch.empty_like(rows_BWD)
    _conv_normed_kernel[(batch * width,)](
        rows_BWD, delta_BWKG, base_KD, stream_BWD, norm_D, out_BWD, normed_BWD, columns, width, delta_BWKG.stride(1),
        columns // groups, groups, 1.0 / columns, eps, TAPS=taps, PADDED=triton.next_power_of_2(columns),
        WIDE=_wide(rows_BWD), OFFSET=offset, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip
    return out_BWD, normed_BWD


def _checked(rows_BWD: Tensor, delta_BWKG: Tensor, base_KD: Tensor) -> tuple[int, int]:
    """Return the taps and groups of kernels that fit."""
    assert rows_BWD.is_contiguous(), "rows must be contiguous"
    assert base_KD.is_contiguous(), "base kernels must be contiguous"
    taps, groups = delta_BWKG.shape[2:]
    assert delta_BWKG.stride()[2:] == (groups, 1), "taps and groups must be close together"
    assert delta_BWKG.stride(0) == rows_BWD.shape[1] * delta_BWKG.stride(1), "rows must be evenly apart"
    return taps, groups


def _wide(rows: Tensor) -> tl.dtype:
    return tl.float64 if rows.dtype == torch.float64 else tl.float32


@triton.jit
def _block_conv_kernel(
    rows_ptr, delta_ptr, base_ptr, stream_ptr, out_ptr, columns, width, delta_stride, group_size, groups,
    TAPS: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    place = row % width
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < columns
    total = _convolved(
        rows_ptr, delta_ptr, base_ptr, stream_ptr, row, place, column, inside, columns, delta_stride, group_size,
        groups, TAPS, WIDE,
    )  # fmt: skip
    tl.store(out_ptr + row * columns + column, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _conv_normed_kernel(
    rows_ptr, delta_ptr, base_ptr, stream_ptr, weight_ptr, out_ptr, normed_ptr, columns, width, delta_stride,
    group_size, groups, inverse_width, eps, TAPS: tl.constexpr, PADDED: tl.constexpr, WIDE: tl.constexpr,
    OFFSET: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside, place = column < columns, row % width
    allow_next(PDL)
    weight = norm_weight(tl.load(weight_ptr + column, mask=inside, other=0.0).to(WIDE), OFFSET)
    await_previous(PDL)
    total = _convolved(
        rows_ptr, delta_ptr, base_ptr, stream_ptr, row, place, column, inside, columns, delta_stride, group_size,
        groups, TAPS, WIDE,
    ).to(out_ptr.dtype.element_ty)  # fmt: skip
    tl.store(out_ptr + row * columns + column, total, mask=inside)
    wide = tl.where(inside, total.to(WIDE), 0.0)
    if tl.float64 == WIDE:
        scale = tl.rsqrt(tl.sum(wide * wide, 0) / columns + eps)
    else:
        scale = root_scale(tl.sum(squares(wide), 0), inverse_width, eps)
    tl.store(normed_ptr + row * columns + column, (wide * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _convolved(
    rows_ptr, delta_ptr, base_ptr, stream_ptr, row, place, column, inside, columns, delta_stride, group_size, groups,
    TAPS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Return columns of a row, convolved and with the stream added."""
    total = (column * 0).to(WIDE)
    if stream_ptr is not None:
        total += tl.load(stream_ptr + row * columns + column, mask=inside, other=0.0).to(WIDE)
    for tap in tl.static_range(TAPS):
        own = inside & (place >= tap)
        value = tl.load(rows_ptr + (row - tap) * columns + column, mask=own, other=0.0).to(WIDE)
        base = tl.load(base_ptr + tap * columns + column, mask=inside, other=0.0).to(WIDE)
        moved = delta_ptr + row * delta_stride + tap * groups + column // group_size
        delta = tl.load(moved, mask=inside, other=0.0).to(WIDE)
        total += (base + delta) * value
    return total
