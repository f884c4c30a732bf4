"""Widens a packed weight into memory on the GPU, for products of many rows. Bytes: F D of codes, 2 F D of numbers."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.linear.packed_weight import GROUP, PackedWeight
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_GROUP = tl.constexpr(GROUP)
_LINES, _WARPS = 32, 4


def widened(weight: PackedWeight) -> Tensor:
    """Return the numbers [F, D], with the bits of `PackedWeight.widened`."""
    outputs, depth = weight.shape
    wide_FD = torch.empty((outputs, depth), dtype=weight.dtype, device=weight.device)
    groups, row_scales = weight.scale_GL.shape
    _widen_kernel[(depth // GROUP, triton.cdiv(outputs, _LINES))](
        weight.codes_FB, weight.scale_GL, wide_FD, outputs, depth, row_scales if groups > 1 else 0, weight.shift,
        BITS=weight.bits, SHORT=weight.short, LINES=_LINES, PDL=PDL, num_warps=_WARPS, **LAUNCH,
    )  # fmt: skip
    return wide_FD


@triton.jit
def _widen_kernel(
    codes_ptr, scales_ptr, wide_ptr, outputs, depth, next_scales, shift,
    BITS: tl.constexpr, SHORT: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    group, line = tl.program_id(0), tl.program_id(1) * LINES + tl.arange(0, LINES)
    column, known = group * _GROUP + tl.arange(0, _GROUP), line < outputs
    scale = tl.load(scales_ptr + group * next_scales + (line >> shift), mask=known, other=0)[:, None]
    at = line.to(tl.int64)[:, None] * (depth * BITS // 8) + _place(column, BITS)[None, :]
    codes = tl.load(codes_ptr + at, mask=known[:, None], other=0)
    if BITS == 8:
        number = codes.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale
    else:
        code = (codes.to(tl.int32) >> (column % 16 // 8 * 4)[None, :]) & 15
        number = (code - (scale & 0xFFFF)).to(tl.float32) * _upper(scale, SHORT)
    allow_next(PDL)
    await_previous(PDL)
    wide = _to_bfloat16(number).to(wide_ptr.dtype.element_ty)
    tl.store(wide_ptr + line.to(tl.int64)[:, None] * depth + column[None, :], wide, mask=known[:, None])


@triton.jit
def _place(column, BITS: tl.constexpr):
    """Return the byte of a column's code: by lane, half, word and byte (`packed_weight`)."""
    lane, odd, later = column % 8 // 2, column % 2, column % 16 // 8
    if BITS == 8:
        place = column // 128 * 128 + lane * 32 + column % 128 // 64 * 16 + column % 64 // 16 * 4 + odd * 2 + 1 - later
    else:
        sixteen = column % 128 // 16
        place = column // 256 * 128 + lane * 32 + column % 256 // 128 * 16 + sixteen // 2 * 4 + odd * 2 + sixteen % 2
    return place


@triton.jit
def _upper(scale, SHORT: tl.constexpr):
    """Return the numbers in the upper halves of scales, float32."""
    if SHORT:
        number = (scale & -65536).to(tl.float32, bitcast=True)
    else:
        number = (scale >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return number


@triton.jit
def _to_bfloat16(number):
    """Round numbers to those of bfloat16, halves to even, as float32. Triton's interpreter would cut them off."""
    bits = number.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
