"""Widens a packed weight into memory on the GPU, for products of many rows. Bytes: F D of codes, 2 F D of numbers."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.linear.packed_weight import GROUP as INPUTS
from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

GROUP = tl.constexpr(INPUTS)
_LINES, _WARPS = 64, 4


def widened(weight: PackedWeight) -> Tensor:
    """Return the numbers [F, D], with the bits of `PackedWeight.widened`."""
    outputs, depth = weight.shape
    wide_FD = torch.empty((outputs, depth), dtype=weight.dtype, device=weight.device)
    groups, row_scales = weight.scale_GL.shape
    _widen_kernel[(depth // INPUTS, triton.cdiv(outputs, _LINES))](
        weight.codes_FB.view(torch.int32), weight.scale_GL, wide_FD, outputs, depth, row_scales if groups > 1 else 0,
        weight.shift, BITS=weight.bits, SHORT=weight.short, LINES=_LINES, PDL=PDL, num_warps=_WARPS, **LAUNCH,
    )  # fmt: skip
    return wide_FD


@triton.jit
def _widen_kernel(
    words_ptr, scales_ptr, wide_ptr, outputs, depth, next_scales, shift,
    BITS: tl.constexpr, SHORT: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Widen 128 inputs of some lines, which are stored in their order."""
    group, line = tl.program_id(0), tl.program_id(1) * LINES + tl.arange(0, LINES)
    word, known = tl.arange(0, 4 * BITS), line < outputs
    at = group * 32 + word if BITS == 8 else group // 2 * 32 + word // 4 * 8 + group % 2 * 4 + word % 4
    scale = tl.load(scales_ptr + group * next_scales + (line >> shift), mask=known, other=0)[:, None]
    line = line.to(tl.int64)[:, None]
    codes = tl.load(words_ptr + line * (depth * BITS // 32) + at[None, :], mask=known[:, None], other=0)
    allow_next(PDL)
    await_previous(PDL)
    numbers = _eights(codes, scale, LINES) if BITS == 8 else _fours(codes, scale, LINES, SHORT)
    place = line * depth + (group * GROUP + tl.arange(0, GROUP))[None, :]
    tl.store(wide_ptr + place, to_bfloat16(numbers).to(wide_ptr.dtype.element_ty), mask=known[:, None])


@triton.jit
def _eights(codes, scale, LINES: tl.constexpr):
    """Return a group's numbers in order [LINES, 128] of words by lane, half and instruction (`packed_weight`).

    A word has two neighbours and those eight further. Stores of a line's numbers as they lie in words would each fill
    four bytes of a sector of 32.
    """
    low = tl.join(_eight(codes, scale, 1), _eight(codes, scale, 3))
    high = tl.join(_eight(codes, scale, 0), _eight(codes, scale, 2))
    numbers = tl.reshape(tl.join(low, high), (LINES, 4, 2, 4, 2, 2))
    return tl.reshape(tl.permute(numbers, (0, 2, 3, 5, 1, 4)), (LINES, GROUP))


@triton.jit
def _fours(codes, scale, LINES: tl.constexpr, SHORT: tl.constexpr):
    """Return a group's numbers in order [LINES, 128]; words are by lane and pair of instructions."""
    first, second = _of_instruction(codes, scale, 0, SHORT), _of_instruction(codes, scale, 8, SHORT)
    numbers = tl.reshape(tl.join(first, second), (LINES, 4, 4, 2, 2, 2))
    return tl.reshape(tl.permute(numbers, (0, 2, 5, 4, 1, 3)), (LINES, GROUP))


@triton.jit
def _of_instruction(codes, scale, bit: tl.constexpr, SHORT: tl.constexpr):
    """Return a word's numbers of one of its two instructions: neighbours, by those that are eight further."""
    low = tl.join(_four(codes, scale, bit, SHORT), _four(codes, scale, bit + 16, SHORT))
    high = tl.join(_four(codes, scale, bit + 4, SHORT), _four(codes, scale, bit + 20, SHORT))
    return tl.join(low, high)


@triton.jit
def _eight(codes, scale, byte: tl.constexpr):
    """Return the numbers of codes that were in a byte of words before their bits were mixed."""
    half = codes >> byte // 2 * 16
    first, second = (half & 0x0F) | (half >> 8 & 0x70) | (half >> 4 & 0x80), (half >> 4 & 0x7F) | (half >> 8 & 0x80)
    code = second if byte % 2 else first
    return code.to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale


@triton.jit
def _four(codes, scale, bit: tl.constexpr, SHORT: tl.constexpr):
    """Return the numbers of codes that begin at a bit of words."""
    return ((codes >> bit & 15) - (scale & 0xFFFF)).to(tl.float32) * _upper(scale, SHORT)


@triton.jit
def _upper(scale, SHORT: tl.constexpr):
    """Return the numbers in the upper halves of scales, float32."""
    if SHORT:
        number = (scale & -65536).to(tl.float32, bitcast=True)
    else:
        number = (scale >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return number


@triton.jit
def to_bfloat16(number):
    """Round numbers to those of bfloat16, halves to even, as float32. Triton's interpreter would cut them off."""
    bits = number.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
