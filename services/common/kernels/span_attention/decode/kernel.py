"""The launch of the kernel for a row each of many sequences, and what it is made for.

Bytes for contexts of n tokens: `B n 2 Hkv D e`, and rows.
"""

from functools import cache, partial

import torch
from torch import Tensor

from services.common.kernels.cuda_program import TensorMap, compiles
from services.common.kernels.normed import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.cut import PROCESSORS
from services.common.kernels.span_attention.decode.source import Shape, program_of
from services.common.kernels.span_attention.hopper import tiles_fit
from services.common.kernels.span_attention.hopper.source import TOKENS
from services.common.kernels.span_attention.span import Span
from services.common.kernels.span_attention.types import Heads, readable

_SIZE, _MOST_GROUP = 128, 8
_LEAST_PAIRS = 2 * PROCESSORS + 1
"""Of sequences and K/V heads. With two a multiprocessor too little is under way for long contexts."""


def attend_mixed(heads: Heads, span: Span) -> Tensor:
    """Do it behind the product of a row of each sequence; return the mixed rows [B, Hq * D]."""
    assert span.ranks_B2 is not None, "sequences must be ranked"
    kv_2NSHD, table_BN, out_TF = heads.kv_2NSHD, span.block_table_BN, heads.room()
    kv_heads, size = kv_2NSHD.shape[3:]
    boxes = TensorMap(kv_2NSHD.view(-1, kv_heads * size), min(span.block_size, TOKENS))
    program_of(_shape(heads.mixed_TF.shape[1], kv_2NSHD, heads.bias_F, heads.norm_HD)).launch(
        (kv_heads, len(out_TF)), boxes, *heads.tensors, table_BN, span.ranks_B2, out_TF, heads.places,
        table_BN.stride(0), table_BN.shape[1], *heads.numbers, heads.scale,
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
