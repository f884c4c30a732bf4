"""Widens a packed weight into memory on the GPU, for products of many rows. Bytes: F D of codes, 2 F D of numbers."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.linear.packed_weight import SUB, PackedWeight
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_SUB = tl.constexpr(SUB)
_LINES, _WARPS = 32, 4


def widened(weight: PackedWeight) -> Tensor:
    """Return the numbers [F, D], with the bits of `PackedWeight.widened`."""
    outputs, depth = weight.shape
    wide_FD = torch.empty((outputs, depth), dtype=weight.dtype, device=weight.device)
    groups, row_scales = weight.scale_GL.shape
    _widen_kernel[(depth // SUB, triton.cdiv(outputs, _LINES))](
        weight.codes_FD, weight.scale_GL, wide_FD, outputs, depth, row_scales if groups > 1 else 0, weight.shift,
        LINES=_LINES, PDL=PDL, num_warps=_WARPS, **LAUNCH,
    )  # fmt: skip
    return wide_FD


@triton.jit
def _widen_kernel(
    codes_ptr, scales_ptr, wide_ptr, outputs, depth, next_scales, shift, LINES: tl.constexpr, PDL: tl.constexpr
):
    group, line = tl.program_id(0), tl.program_id(1) * LINES + tl.arange(0, LINES)
    column = tl.arange(0, _SUB)
    # Where the code of a column lies: by lane, half, instruction of sixteen, and byte (`packed_weight`).
    lane, byte = column % 8 // 2, column % 2 * 2 + 1 - column % 16 // 8
    place = lane * 32 + column // 64 * 16 + column % 64 // 16 * 4 + byte
    known, at = line < outputs, line.to(tl.int64) * depth + group * _SUB
    codes = tl.load(codes_ptr + at[:, None] + place[None, :], mask=known[:, None], other=0)
    scale = tl.load(scales_ptr + group * next_scales + (line >> shift), mask=known, other=0.0)
    number = codes.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale[:, None]
    allow_next(PDL)
    await_previous(PDL)
    wide = _to_bfloat16(number).to(wide_ptr.dtype.element_ty)
    tl.store(wide_ptr + at[:, None] + column[None, :], wide, mask=known[:, None])


@triton.jit
def _to_bfloat16(number):
    """Round numbers to those of bfloat16, halves to even, as float32. Triton's interpreter would cut them off."""
    bits = number.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
