"""Attention of many sequences of few rows, which makes its heads of the product of queries, keys and values.

An item of the kernel has all rows of a sequence and K/V head, so nobody makes a head twice. Tiles that are older than
the rows come meanwhile. A launch less stands between two products, and queries are not written and read.
"""

from functools import cache, partial

import torch
from torch import Tensor

from services.common.kernels.cuda_program import compiles
from services.common.kernels.linear.kernel import engine_of
from services.common.kernels.normed import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.hopper import tiles_fit
from services.common.kernels.span_attention.hopper.cut import ROWS, TileCut, cut_tiles
from services.common.kernels.span_attention.hopper.launching import launch_tiles
from services.common.kernels.span_attention.hopper.source import Shape, program_of
from services.common.kernels.span_attention.span import Span
from services.common.kernels.span_attention.types import Heads, readable

_CUT = TileCut(1, 1, 2)
_SIZE, _MOST_ROWS, _MOST_WIDTH = 128, ROWS // 2, 8


def attend_mixed(heads: Heads, span: Span) -> Tensor:
    """Do it behind the product of all rows; return the mixed rows [T, Hq * D]."""
    out_TF, shape = heads.room(), _shape(heads.mixed_TF.shape[1], heads.kv_2NSHD, heads.norm_HD, heads.bias_F)
    launch_tiles(shape, _CUT, span, heads.kv_2NSHD, out_TF, heads.scale, heads=heads)
    return out_TF


def serves(
    normed: Normed, qkv_FD: Tensor, norm_HD: Tensor | None, rotation: Rotation, kv_2NSHD: Tensor, span: Span,
    bias_F: Tensor | None,
) -> bool:  # fmt: skip
    """Whether the kernel takes a round: behind a product of the library, which lets no kernel begin before its end."""
    (batch, width), (kv_heads, size) = span.positions_BW.shape, kv_2NSHD.shape[3:]
    rows = width * (len(qkv_FD) // size // kv_heads - 2)
    if size != _SIZE or rows > _MOST_ROWS or width > _MOST_WIDTH or span.ranks_B2 is None:
        return False
    if cut_tiles(rows, batch * kv_heads, size, span.short) != _CUT or not tiles_fit(kv_2NSHD, span):
        return False
    if not readable((torch.bfloat16, (norm_HD, bias_F)), (torch.float32, rotation), (torch.int64, (span.slots_T,))):
        return False
    if not engine_of(normed.rows_TD, qkv_FD).product_is_complete:
        return False
    return _usable(qkv_FD.device, _shape(len(qkv_FD), kv_2NSHD, norm_HD, bias_F))


def _shape(lines: int, kv_2NSHD: Tensor, norm_HD: Tensor | None, bias_F: Tensor | None) -> Shape:
    block, kv_heads, size = kv_2NSHD.shape[2:]
    group = lines // size // kv_heads - 2
    biased, normed = bias_F is not None, norm_HD is not None
    return Shape(
        size, group, block, 1, True, _CUT.items, halves=1, ranked=True, kv_heads=kv_heads, makes_heads=True,
        biased=biased, normed=normed,
    )  # fmt: skip


@cache
def _usable(device: torch.device, shape: Shape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"heads of {shape.group} a group are made before attention"
    return compiles(device, otherwise, partial(program_of, shape))
