"""Span attention on the GPU, split over the K/V with a fixed grid; lengths and block tables are read on the device.

So one captured launch serves every context length. A program handles all query heads of one K/V head for a tile of
rows. Of many sequences one program walks all splits of the positions (`splits.py`) and adds them itself. Of few the
splits are shared among programs: the first adds up its own, the others leave a part of each, and a second launch adds
all parts in order, with the same bits. Bytes for contexts of n tokens: `B n 2 Hkv D e` once (grouped queries share the
read), `B Hq W D e` of queries, and `8 B Hq W D` of float32 sums a part, written and read in L2.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL
from services.common.kernels.span_attention.cut import Cut, cut_heads, cut_span
from services.common.kernels.span_attention.hopper import attend_tiles, tiles_of
from services.common.kernels.span_attention.merge import merge_kernel, merge_rows
from services.common.kernels.span_attention.program import attend_kernel
from services.common.kernels.span_attention.span import Span
from services.common.kernels.span_attention.splits import MOST_SPLITS, part_count, split_count, tile_tokens
from services.common.kernels.span_attention.tree.kernel import attend_tree

_LOG2_E = 1.4426950408889634


def attend_span(
    q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, room_BWF: Tensor | None = None,
    exponents_2NSH: Tensor | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Let row j attend to positions 0 .. length + j; the result is in `room_BWF`, where that is given."""
    if span.mask.lineage_BWW is not None:
        assert scale is None, "no kernel has other scales over trees"
        return attend_tree(q_BWHD, kv_2NSHD, span, room_BWF, exponents_2NSH)
    return _launch(q_BWHD, None, None, kv_2NSHD, span, room_BWF, exponents_2NSH, scale)


def attend_block(q_BWHD: Tensor, keys_BWHD: Tensor, values_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Let every row attend to the context and to its whole block."""
    return _launch(q_BWHD, keys_BWHD, values_BWHD, kv_2NSHD, span)


def _launch(
    q_BWHD: Tensor, keys: Tensor | None, values: Tensor | None, kv_2NSHD: Tensor, span: Span,
    room_BWF: Tensor | None = None, exponents_2NSH: Tensor | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    batch, width, heads, size = q_BWHD.shape
    kv_heads = kv_2NSHD.shape[3]
    group = heads // kv_heads
    rows = width * group
    room = span.block_table_BN.shape[1] * span.block_size
    cut = cut_heads(size, cut_span(rows, batch * kv_heads, size * q_BWHD.element_size(), span.short))
    # A program that is alone begins where its own rows' windows do, programs that share begin where the sequence's do.
    together = width if cut.programs > 1 or keys is not None else min(width, triton.cdiv(cut.tile, group) + 1)
    tokens = tile_tokens(size)
    splits = split_count(span.mask.window, together, tokens)
    own = None if keys is None or values is None else (keys, values)
    tiles = tiles_of(q_BWHD, kv_2NSHD, span, own, exponents_2NSH)
    programs = tiles.programs if tiles else splits if cut.programs == MOST_SPLITS else cut.programs
    parts = part_count(splits, programs)
    q_BWHD = q_BWHD.contiguous()
    wide = torch.float64 if q_BWHD.dtype == torch.float64 else torch.float32
    shared = batch * kv_heads if programs > 1 else 0
    partial = torch.empty((shared, parts, rows, size), dtype=wide, device=q_BWHD.device)
    sums = torch.empty((shared, parts, rows, 2), dtype=wide, device=q_BWHD.device)
    out_BWF = q_BWHD.new_empty((batch, width, heads * size)) if room_BWF is None else room_BWF
    assert out_BWF.is_contiguous(), "results must lie row by row"
    shapes = {
        "WINDOW": span.mask.window, "WIDTH": width, "GROUP": group, "KV_HEADS": kv_heads, "SIZE": size,
        "SIZE_PAD": triton.next_power_of_2(size), "SPLITS": splits, "TOKENS": tokens, "PDL": PDL,
        "HAS_BLOCK": keys is not None, "WIDE": tl.float64 if wide == torch.float64 else tl.float32,
        "PROGRAMS": programs, "PARTS": parts, **LAUNCH,
    }  # fmt: skip
    scale = (size**-0.5 if scale is None else scale) * _LOG2_E
    if tiles:
        attend_tiles(q_BWHD, kv_2NSHD, span, tiles, partial, sums, out_BWF, scale, own, exponents_2NSH)
    else:
        grid = batch * kv_heads, programs, (2 if programs == 1 else 1) * triton.cdiv(rows, cut.tile)
        codes = kv_2NSHD, kv_2NSHD if exponents_2NSH is None else exponents_2NSH
        _attend(grid, cut, q_BWHD, codes, own or (q_BWHD, q_BWHD), span, (partial, sums, out_BWF), scale, shapes)
    if shared:
        tile, warps = merge_rows(batch * kv_heads, rows)
        merge_kernel[(batch * kv_heads, triton.cdiv(rows, tile))](
            partial, sums, out_BWF, span.lengths_B, span.reach_B, room, ROWS=tile, num_warps=warps, **shapes,
        )  # fmt: skip
    return out_BWF


def _attend(
    grid: tuple[int, int, int], cut: Cut, q_BWHD: Tensor, codes: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor],
    span: Span, results: tuple[Tensor, Tensor, Tensor], scale: float, shapes: dict[str, Any],
) -> None:  # fmt: skip
    """Launch Triton's program for K/V, or codes with exponents, and the `own` keys and values of a block."""
    kv_2NSHD, exponents_2NSH = codes
    keys, values = own
    attend_kernel[grid](
        q_BWHD, kv_2NSHD, exponents_2NSH, keys, values, span.block_table_BN, span.lengths_B, span.reach_B,
        span.positions_BW, *results,
        kv_2NSHD.shape[1] * kv_2NSHD.shape[2], span.block_table_BN.stride(0), span.block_table_BN.shape[1],
        keys.stride(0), keys.stride(1), keys.stride(2), values.stride(0), values.stride(1), values.stride(2), scale,
        BLOCK_SIZE=span.block_size, CAUSAL=not shapes["HAS_BLOCK"] or span.mask.causal, TILE=cut.tile,
        num_warps=cut.warps, num_stages=cut.stages, **shapes,
    )  # fmt: skip
