"""Grouped dynamic convolution on the GPU, one program per row and tile of columns.

Bytes for T rows, D columns, K taps: (2 + K) T D e with a stream, each row read K times.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_TILE = 1024


def block_conv(rows_BWD: Tensor, delta_BWKG: Tensor, base_KD: Tensor, stream_BWD: Tensor | None = None) -> Tensor:
    """Return `sum over k of (base[k] + delta[.., k, group]) * rows[.., row - k]` [B, W, D], and a stream added.

    `delta_BWKG` may be a part of a wider tensor; its taps and groups lie close together.
    """
    assert rows_BWD.is_contiguous(), "rows must be contiguous"
    assert base_KD.is_contiguous(), "base kernels must be contiguous"
    batch, width, columns = rows_BWD.shape
    taps, groups = delta_BWKG.shape[2:]
    assert delta_BWKG.stride()[2:] == (groups, 1), "taps and groups must be close together"
    assert delta_BWKG.stride(0) == width * delta_BWKG.stride(1), "rows must be evenly apart"
    out_BWD = torch.empty_like(rows_BWD)
    wide = tl.float64 if rows_BWD.dtype == torch.float64 else tl.float32
    _block_conv_kernel[(batch * width, triton.cdiv(columns, _TILE))](
        rows_BWD, delta_BWKG, base_KD, stream_BWD, out_BWD, columns, width, delta_BWKG.stride(1), columns // groups,
        groups, TAPS=taps, TILE=_TILE, WIDE=wide, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return out_BWD


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
    total = tl.zeros((TILE,), dtype=WIDE)
    if stream_ptr is not None:
        total += tl.load(stream_ptr + row * columns + column, mask=inside, other=0.0).to(WIDE)
    for tap in tl.static_range(TAPS):
        own = inside & (place >= tap)
        value = tl.load(rows_ptr + (row - tap) * columns + column, mask=own, other=0.0).to(WIDE)
        base = tl.load(base_ptr + tap * columns + column, mask=inside, other=0.0).to(WIDE)
        moved = delta_ptr + row * delta_stride + tap * groups + column // group_size
        delta = tl.load(moved, mask=inside, other=0.0).to(WIDE)
        total += (base + delta) * value
    tl.store(out_ptr + row * columns + column, total.to(out_ptr.dtype.element_ty), mask=inside)
