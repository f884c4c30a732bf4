"""The launch of the kernel for a row each of many sequences, and what it is made for.

Bytes for contexts of n tokens: `B n 2 Hkv D e`, and rows.
"""

from functools import cache, partial

import torch
from torch import Tensor

from services.common.kernels.cuda_program import TensorMap, compiles
from services.common.kernels.linear.normed import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.cut import PROCESSORS
from services.common.kernels.span_attention.decode.source import Shape, program_of
from services.common.kernels.span_attention.hopper import tiles_fit
from services.common.kernels.span_attention.hopper.source import TOKENS
from services.common.kernels.span_attention.span import Span
from services.common.kernels.span_attention.types import readable

_SIZE, _MOST_GROUP = 128, 8
_LEAST_PAIRS = 2 * PROCESSORS + 1
"""Of sequences and K/V heads. With two a multiprocessor too little is under way for long contexts."""
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
    """Do it behind the product `mixed` of rows that were `width` wide; return the mixed rows [T, Hq * D]."""
    (kv_heads, size), mixed_TF = kv_2NSHD.shape[3:], mixed.rows_TD
    assert mixed_TF.is_contiguous(), "rows must be contiguous"
    assert span.ranks_B2 is not None, "sequences must be ranked"
    rows, lines = mixed_TF.shape
    out_TF = mixed_TF.new_empty((rows, lines - 2 * kv_heads * size))
    boxes = TensorMap(kv_2NSHD.view(-1, kv_heads * size), min(span.block_size, TOKENS))
    program_of(_shape(lines, kv_2NSHD, bias_F, norm_HD)).launch(
        (kv_heads, rows), boxes, mixed_TF, mixed.squares_T, bias_F, norm_HD, rotation.cos_T1D, rotation.sin_T1D,
        span.slots_T, kv_2NSHD, span.block_table_BN, span.ranks_B2, out_TF, kv_2NSHD.shape[1] * kv_2NSHD.shape[2],
        span.block_table_BN.stride(0), span.block_table_BN.shape[1], 1.0 / max(width, 1), eps, offset,
        size**-0.5 * _LOG2_E,
    )  # fmt: skip
    return out_TF


def serves(
    normed: Normed, qkv_FD: Tensor, norm_HD: Tensor | None, rotation: Rotation, kv_2NSHD: Tensor, span: Span,
    bias_F: Tensor | None,
) -> bool:  # fmt: skip
    """Whether the kernel takes a round: a row each of many sequences, behind any product."""
    (batch, width), (kv_heads, size) = span.positions_BW.shape, kv_2NSHD.shape[3:]
    group = len(qkv_FD) // size // kv_heads - 2
    if width > 1 or size != _SIZE or group > _MOST_GROUP:
        return False
    if batch * kv_heads < _LEAST_PAIRS or span.ranks_B2 is None or not tiles_fit(kv_2NSHD, span):
        return False
    if not readable(
        (torch.bfloat16, (normed.rows_TD, norm_HD, bias_F)), (torch.float32, rotation),
        (torch.int32, (span.ranks_B2,)), (torch.int64, (span.slots_T,)),
    ):  # fmt: skip
        return False
    return _usable(qkv_FD.device, _shape(len(qkv_FD), kv_2NSHD, bias_F, norm_HD))


def _shape(lines: int, kv_2NSHD: Tensor, bias_F: Tensor | None, norm_HD: Tensor | None) -> Shape:
    block, kv_heads, size = kv_2NSHD.shape[2:]
    group = lines // size // kv_heads - 2
    return Shape(size, kv_heads, group, block, biased=bias_F is not None, normed=norm_HD is not None)


@cache
def _usable(device: torch.device, shape: Shape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"a row each of many sequences, {shape.group} heads a group, goes through two kernels"
    return compiles(device, otherwise, partial(program_of, shape))
