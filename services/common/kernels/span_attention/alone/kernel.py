"""The launch of the kernel for a row that is alone, and what it is made for."""

from functools import cache, partial

import torch
from torch import Tensor

from services.common.kernels.cuda_program import compiles
from services.common.kernels.linear.kernel import is_skinny
from services.common.kernels.linear.normed import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.alone.cut import CTAS, takes_row
from services.common.kernels.span_attention.alone.source import Shape, program_of
from services.common.kernels.span_attention.span import Span
from services.common.kernels.span_attention.types import readable

_LEAST_BLOCK = 8
_LOG2_E = 1.4426950408889634


def attend_mixed(
    mixed: Normed,
    norm_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    span: Span,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
    width: int = 0,
) -> Tensor:
    """Do it behind the product `mixed` of a row that was `width` wide."""
    (kv_heads, size), mixed_TF = kv_2NSHD.shape[3:], mixed.rows_TD
    queries = mixed_TF.shape[1] // size - 2 * kv_heads
    out_TF = mixed_TF.new_empty((1, queries * size))
    program_of(_shape(mixed_TF.shape[1], kv_2NSHD)).launch(
        (kv_heads * CTAS, 1), mixed_TF, mixed.squares_T, bias_F, norm_HD, rotation.cos_T1D, rotation.sin_T1D,
        span.slots_T, kv_2NSHD, span.block_table_BN, span.lengths_B, span.reach_B, out_TF,
        kv_2NSHD.shape[1] * kv_2NSHD.shape[2], span.block_table_BN.shape[1], kv_heads, 1.0 / max(width, 1), eps, offset,
        size**-0.5 * _LOG2_E,
    )  # fmt: skip
    return out_TF


def serves(
    normed: Normed, qkv_FD: Tensor, norm_HD: Tensor | None, rotation: Rotation, kv_2NSHD: Tensor, span: Span,
    bias_F: Tensor | None,
) -> bool:  # fmt: skip
    """Whether the kernel takes a round, behind a product that lets it begin when all before that is complete."""
    block, kv_heads, size = kv_2NSHD.shape[2:]
    if span.positions_BW.numel() != 1 or not span.mask.is_open or block % _LEAST_BLOCK:
        return False
    if not takes_row(len(qkv_FD) // size // kv_heads - 2, kv_heads, size, span.short):
        return False
    if not readable(
        (torch.bfloat16, (kv_2NSHD, norm_HD, bias_F)), (torch.float32, rotation), (torch.int32, (span.block_table_BN,)),
        (torch.int64, (span.slots_T, span.lengths_B, span.reach_B)),
    ):  # fmt: skip
        return False
    return is_skinny(normed.rows_TD, qkv_FD) and _usable(normed.rows_TD.device, _shape(len(qkv_FD), kv_2NSHD))


def _shape(lines: int, kv_2NSHD: Tensor) -> Shape:
    block, kv_heads, size = kv_2NSHD.shape[2:]
    return Shape(size, lines // size // kv_heads - 2, block)


@cache
def _usable(device: torch.device, shape: Shape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"a row alone of {shape.group} heads a group goes through three kernels"
    return compiles(device, otherwise, partial(program_of, shape))
