"""Numbers of packed weights: bits taken apart, and codes multiplied by the scales of their blocks."""

from collections.abc import Callable

import torch
from torch import Tensor

_AT_ONCE = 1 << 22
"""Numbers that are widened at a time: what float32 takes beside codes and result stays below some megabytes."""
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_E2M1 = torch.cat((_FP4, -_FP4))


def as_numbers(codes: Tensor) -> Tensor:
    """Return codes that are numbers themselves as float32."""
    return codes.float()


def fp4_numbers(codes: Tensor) -> Tensor:
    """Return E2M1 codes, four bits with the sign first, as float32."""
    return _E2M1.index_select(0, codes.flatten().int()).view(codes.shape)


def scales_of(scales: Tensor) -> Tensor:
    """Return scales of any type as float32, which holds them all exactly; those of a byte are 2^(code - 127)."""
    return (scales.view(torch.float8_e8m0fnu) if scales.dtype == torch.uint8 else scales).float()


def scaled(
    codes_FD: Tensor,
    scale_RC: Tensor,
    block: tuple[int, int],
    zero_RC: Tensor | None = None,
    group_D: Tensor | None = None,
    numbers: Callable[[Tensor], Tensor] = as_numbers,
    factor: Tensor | None = None,
    divisor: Tensor | None = None,
) -> Tensor:
    """Return bfloat16((code - zero) * scale * factor / divisor), [F, D], of blocks [R, C] of `block` lines and columns.

    All of it is float32. `group_D` names the block of each column where they are not in order; `factor` and `divisor`
    are numbers [1] of the tensor.
    """
    outputs, depth = codes_FD.shape
    row_F = torch.arange(outputs) // block[0]
    column_D = torch.arange(depth) // block[1] if group_D is None else group_D.long()
    wide_FD = torch.empty((outputs, depth), dtype=torch.bfloat16)
    step = max(1, _AT_ONCE // max(1, depth))
    for first in range(0, outputs, step):
        part = slice(first, first + step)
        value = numbers(codes_FD[part])
        if zero_RC is not None:
            value = value - zero_RC[row_F[part]].float().index_select(1, column_D)
        value = value * scale_RC[row_F[part]].index_select(1, column_D)
        value = value if factor is None else value * factor
        wide_FD[part] = value if divisor is None else value / divisor
    return wide_FD


def scales_of_lines(scale_RC: Tensor, block: tuple[int, int], shape: tuple[int, ...]) -> Tensor | None:
    """Return a scale for each line and 128 inputs, or one a line, of blocks [R, C]; None where these are others."""
    if scale_RC.shape[1] > 1 and block[1] != 128:
        return None
    return scale_RC.repeat_interleave(block[0], 0)[: shape[0]]


def unpacked(words_RW: Tensor, bits: int, count: int) -> Tensor:
    """Return `count` codes [R, count], uint8, of rows of int32 words; the lowest bits come first, without gaps."""
    mask = (1 << bits) - 1
    if 8 % bits == 0:
        # Of a single column torch takes any stride for contiguous, and then gives no bytes of it.
        bytes_RB = words_RW.reshape(-1).view(torch.uint8).view(len(words_RW), -1)
        codes = torch.stack([(bytes_RB >> shift) & mask for shift in range(0, 8, bits)], -1)
        return codes.flatten(1)[:, :count]
    step = max(1, _AT_ONCE // max(1, count))
    return torch.cat([_gathered(part, bits, count) for part in words_RW.split(step)])


def _gathered(words_RW: Tensor, bits: int, count: int) -> Tensor:
    """Return codes that may lie across two words."""
    start_N = torch.arange(count) * bits
    low_N, high_N = start_N // 32, (start_N + bits - 1) // 32
    wide_RW = words_RW.long() & 0xFFFFFFFF
    both_RN = wide_RW.index_select(1, low_N) | (wide_RW.index_select(1, high_N) << 32)
    return ((both_RN >> (start_N % 32)) & ((1 << bits) - 1)).to(torch.uint8)


def nibbles(bytes_RB: Tensor) -> Tensor:
    """Return the codes [R, 2 B] of bytes, the lower half first."""
    return torch.stack((bytes_RB & 15, bytes_RB >> 4), -1).flatten(-2)
