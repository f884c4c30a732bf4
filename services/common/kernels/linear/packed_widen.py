"""Widens a packed weight into memory on the GPU, for products of many rows. Bytes: F D of codes, 2 F D of numbers."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.linear.packed_weight import GROUP, PackedWeight
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_GROUP = tl.constexpr(GROUP)
_LINES, _WARPS = 64, 4


def widened(weight: PackedWeight) -> Tensor:
    """Return the numbers [F, D], with the bits of `PackedWeight.widened`."""
    outputs, depth = weight.shape
    wide_FD = torch.empty((outputs, depth), dtype=weight.dtype, device=weight.device)
    groups, row_scales = weight.scale_GL.shape
    _widen_kernel[(depth // GROUP, triton.cdiv(outputs, _LINES))](
        weight.codes_FB.view(torch.int32), weight.scale_GL, wide_FD, outputs, depth, row_scales if groups > 1 else 0,
        weight.shift, BITS=weight.bits, SHORT=weight.short, LINES=_LINES, PDL=PDL, num_warps=_WARPS, **LAUNCH,
    )  # fmt: skip
    return wide_FD


@triton.jit
def _widen_kernel(
    words_ptr, scales_ptr, wide_ptr, outputs, depth, next_scales, shift,
    BITS: tl.constexpr, SHORT: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Widen 128 inputs of some lines. A word of codes is pairs of neighbours, which are stored as such."""
    group, line = tl.program_id(0), tl.program_id(1) * LINES + tl.arange(0, LINES)
    word, known = tl.arange(0, 4 * BITS), line < outputs
    at, first = _place(word, group, BITS)
    scale = tl.load(scales_ptr + group * next_scales + (line >> shift), mask=known, other=0)[:, None]
    line = line.to(tl.int64)[:, None]
    codes = tl.load(words_ptr + line * (depth * BITS // 32) + at[None, :], mask=known[:, None], other=0)
    allow_next(PDL)
    await_previous(PDL)
    for piece in tl.static_range(8 // BITS):
        for later in tl.static_range(2):
            if BITS == 8:
                even, odd = _eight(codes, scale, 1 - later), _eight(codes, scale, 3 - later)
            else:
                even = _four(codes, scale, piece * 8 + later * 4, SHORT)
                odd = _four(codes, scale, piece * 8 + later * 4 + 16, SHORT)
            place = line * depth + (group * _GROUP + first + piece * 16 + later * 8)[None, :]
            _store_pair(wide_ptr, place, even, odd, known[:, None])


@triton.jit
def _place(word, group, BITS: tl.constexpr):
    """Return the place of each word of a group of 128 inputs in its line, and the first input that it has a code of.

    In a swizzled row words lie by lane, half and instruction (`packed_weight`); of four bits a half is a group.
    """
    if BITS == 8:
        at, first = group * 32 + word, word // 4 % 2 * 64 + word % 4 * 16 + word // 8 * 2
    else:
        at = group // 2 * 32 + word // 4 * 8 + group % 2 * 4 + word % 4
        first = word % 4 * 32 + word // 4 * 2
    return at, first


@triton.jit
def _eight(codes, scale, byte: tl.constexpr):
    """Return the numbers of codes in a byte of words."""
    code = (codes >> byte * 8 & 255).to(tl.uint8)
    return code.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale


@triton.jit
def _four(codes, scale, bit: tl.constexpr, SHORT: tl.constexpr):
    """Return the numbers of codes that begin at a bit of words."""
    return ((codes >> bit & 15) - (scale & 0xFFFF)).to(tl.float32) * _upper(scale, SHORT)


@triton.jit
def _store_pair(wide_ptr, place, even, odd, known):
    """Store two neighbours, rounded to bfloat16: at once where memory has such."""
    even, odd = _to_bfloat16(even), _to_bfloat16(odd)
    if wide_ptr.dtype.element_ty == tl.bfloat16:
        low, high = even.to(tl.int32, bitcast=True) >> 16 & 0xFFFF, odd.to(tl.int32, bitcast=True) & -65536
        tl.store(wide_ptr.to(tl.pointer_type(tl.int32)) + place // 2, low | high, mask=known)
    else:
        tl.store(wide_ptr + place, even.to(wide_ptr.dtype.element_ty), mask=known)
        tl.store(wide_ptr + place + 1, odd.to(wide_ptr.dtype.element_ty), mask=known)


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
