"""Attention of many rows of a K/V head in CUDA C++, with the bits of the program in Triton.

A multiprocessor has one CTA, which takes one item after another. TMA fetches keys and values by itself, so
tiles come as fast as memory gives them. The scores of a tile are computed while the one before it is weighed.
"""

from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import LoneBoxes, TensorMap, compiles
from services.common.kernels.span_attention.cut import PROCESSORS
from services.common.kernels.span_attention.hopper.cut import ROWS, TileCut, cut_blocks, cut_codes, cut_tiles, cut_trees
from services.common.kernels.span_attention.hopper.source import LEFT_ROWS, NARROW_NODES, TOKENS, Shape, program_of
from services.common.kernels.span_attention.span import Span

__all__ = ["Own", "TileCut", "attend_tiles", "tiles_of", "tree_tiles_of"]

Own = tuple[Tensor, Tensor]
"""Keys and values [B, W, Hkv, D] of a drafter's block, all of which its rows see."""
_LEAST_BLOCK = 8
_EIGHT, _ALIGNMENT = 8, 16


def tiles_of(
    q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, own: Own | None = None, exponents_2NSH: Tensor | None = None
) -> TileCut | None:
    """Return how a causal span or a drafter's block is cut; None where Triton's programs serve it.

    With exponents keys and values are codes.
    """
    batch, width, heads, size = q_BWHD.shape
    kv_heads = kv_2NSHD.shape[3]
    group, pairs = heads // kv_heads, batch * kv_heads
    if not span.mask.is_open or not _fit(q_BWHD, kv_2NSHD, span, exponents_2NSH):
        return None
    if own is not None and not _readable(*own):
        return None
    room, short = span.block_table_BN.shape[1] * span.block_size, span.short
    if exponents_2NSH is not None:
        cut = cut_codes(width * group, pairs, size, short)
    else:
        cut = cut_blocks(width, group, pairs, size, room) if own else cut_tiles(width * group, pairs, size, short)
    if cut is None or not _usable(q_BWHD.device, _shape(q_BWHD, kv_2NSHD, span, cut, own is not None)):
        return None
    return cut


def tree_tiles_of(q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> TileCut | None:
    """Return how trees are cut; None where Triton's programs serve."""
    width, heads, size = q_BWHD.shape[1:]
    kv_heads = kv_2NSHD.shape[3]
    cut = cut_trees(width * heads // kv_heads, len(q_BWHD) * kv_heads, size, span.short)
    if cut is None or not _fit(q_BWHD, kv_2NSHD, span) or (cut.spread == 1 and width > NARROW_NODES):
        return None
    return cut if _usable(q_BWHD.device, _shape(q_BWHD, kv_2NSHD, span, cut, False, nodes=True)) else None


def _fit(q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, exponents_2NSH: Tensor | None = None) -> bool:
    block, tables = span.block_size, (span.block_table_BN.dtype, span.lengths_B.dtype, span.reach_B.dtype)
    kinds = q_BWHD.dtype, kv_2NSHD.dtype
    if not kv_2NSHD.is_cuda or not kv_2NSHD.is_contiguous():
        return False
    if kinds != (torch.bfloat16, torch.bfloat16 if exponents_2NSH is None else torch.int8):
        return False
    if exponents_2NSH is not None and not _copied(exponents_2NSH, min(block, TOKENS)):
        return False
    if block % _LEAST_BLOCK or (TOKENS % block and block % TOKENS):
        return False
    return tables == (torch.int32, torch.int64, torch.int64)


def _copied(exponents_2NSH: Tensor, positions: int) -> bool:
    """Whether those of so many positions, and of all heads, are copied by sixteens."""
    places, bytes_ = exponents_2NSH[0].numel(), positions * exponents_2NSH.shape[3]
    aligned = (exponents_2NSH.data_ptr() | places | bytes_) % _ALIGNMENT == 0
    return exponents_2NSH.is_contiguous() and aligned


def attend_tiles(
    q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, cut: TileCut, partial: Tensor, sums: Tensor, out_BWF: Tensor,
    scale: float, own: Own | None = None, exponents_2NSH: Tensor | None = None,
) -> None:  # fmt: skip
    """Leave the parts of splits in `partial` [B * Hkv, parts, W * group, D] and `sums`, or one program's result."""
    lineage_BWW = span.mask.lineage_BWW
    shape = _shape(q_BWHD, kv_2NSHD, span, cut, own is not None, lineage_BWW is not None)
    (batch, width), (kv_heads, size) = span.positions_BW.shape, kv_2NSHD.shape[3:]
    lines_of_items = batch * -(-width * shape.group // (ROWS * cut.row_groups))
    items = lines_of_items * kv_heads * cut.programs
    lines = kv_2NSHD.view(-1, kv_heads * size)
    boxes = TensorMap
    if exponents_2NSH is not None:
        lines, boxes = lines.view(torch.bfloat16), LoneBoxes  # two codes are one number
    keys, values = own or (None, None)
    alone = shape.narrow or cut.spread > 1  # a CTA or some of them have an item
    grid = (kv_heads * cut.spread, lines_of_items) if alone else (min(-(-items // cut.items), PROCESSORS), 1)
    program_of(shape).launch(
        grid, boxes(lines, min(span.block_size, TOKENS)), q_BWHD,
        span.block_table_BN, span.lengths_B, span.reach_B, span.ranks_B2, partial, sums, out_BWF,
        len(lines) // 2, span.block_table_BN.stride(0), span.block_table_BN.shape[1], batch, width, cut.programs,
        partial.shape[1], scale, keys, values, *((0, 0, 0) if keys is None else keys.stride()[:3]),
        span.positions_BW, lineage_BWW, int(span.side_by_side), exponents_2NSH,
    )  # fmt: skip


def _readable(keys: Tensor, values: Tensor) -> bool:
    """Whether threads may read both by eight numbers at once, at the same places."""
    aligned = all(rows.dtype == torch.bfloat16 and rows.data_ptr() % _ALIGNMENT == 0 for rows in (keys, values))
    strides = keys.stride()
    return aligned and values.stride() == strides and strides[3] == 1 and all(n % _EIGHT == 0 for n in strides[:3])


def _shape(q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, cut: TileCut, in_block: bool, nodes: bool = False) -> Shape:
    width, heads, size = q_BWHD.shape[1:]
    block, kv_heads = kv_2NSHD.shape[2:4]
    group, alone = heads // kv_heads, cut.programs == 1
    rows, most = width * group, ROWS * cut.row_groups
    halves = -(-min(rows, ROWS) * 2 // ROWS)
    ranked = span.ranks_B2 is not None and alone and cut.spread == 1 and rows <= most
    codes = kv_2NSHD.dtype == torch.int8
    return Shape(
        size, group, block, cut.row_groups, alone, cut.items, in_block, halves, ranked, cut.spread, kv_heads, nodes,
        codes, _counted(rows) if codes else 0,
    )  # fmt: skip


def _counted(rows: int) -> int:
    """Return how many rows products with codes on the left have, of few sizes; 0 where these are on the right."""
    return next((count for count in (8, 16, LEFT_ROWS) if rows <= count), 0)


@kept
def _usable(device: torch.device, shape: Shape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"attention of heads of {shape.size} goes through Triton"
    return compiles(device, otherwise, partial(program_of, shape))
