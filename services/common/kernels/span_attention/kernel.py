"""Span attention on the GPU, split over the K/V with a fixed grid; lengths and block tables are read on the device.

So one captured launch serves every context length. Grid (B * Hkv, SPLITS, row tiles): a program handles all query
heads of one K/V head for a tile of rows over its share of the positions; a second launch merges the shares.
Bytes for contexts of n tokens: B n 2 Hkv D e once (grouped queries share the read), plus B Hq W D e queries and
8 B Hq W D SPLITS bytes of float32 partial sums, written and read in L2.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.overlap import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.span_attention.cut import cut_span
from services.common.kernels.span_attention.span import Span

_MERGE_ROWS, _MERGE_WARPS = 1 if INTERPRETED else 2, 1
_MANY_MERGE_ROWS, _MANY_MERGE_WARPS = 8, 4
_MANY_MERGES = 264
_MERGE_PARTS = 16
_LOG2_E = 1.4426950408889634


def attend_span(q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Let row j attend to positions 0 .. length + j."""
    return _launch(q_BWHD, None, None, kv_2NSHD, span)


def attend_block(q_BWHD: Tensor, keys_BWHD: Tensor, values_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Let every row attend to the context and to its whole block."""
    return _launch(q_BWHD, keys_BWHD, values_BWHD, kv_2NSHD, span)


def _merge_rows(pairs: int, rows: int) -> tuple[int, int]:
    """Return rows and warps of a merging program: of many small ones the launch would take longer than the work."""
    many = pairs * rows >= _MANY_MERGES * _MANY_MERGE_ROWS
    return (_MANY_MERGE_ROWS, _MANY_MERGE_WARPS) if many else (_MERGE_ROWS, _MERGE_WARPS)


def _launch(q_BWHD: Tensor, keys: Tensor | None, values: Tensor | None, kv_2NSHD: Tensor, span: Span) -> Tensor:
    batch, width, heads, size = q_BWHD.shape
    kv_heads = kv_2NSHD.shape[3]
    group = heads // kv_heads
    rows = width * group
    longest = span.block_table_BN.shape[1] * span.block_size
    cut = cut_span(rows, batch * kv_heads, size * q_BWHD.element_size(), keys is None, longest)
    splits = cut.splits
    q_BWHD = q_BWHD.contiguous()
    block_keys, block_values = (q_BWHD, q_BWHD) if keys is None or values is None else (keys, values)
    wide = torch.float64 if q_BWHD.dtype == torch.float64 else torch.float32
    partial = torch.empty((batch * kv_heads, splits, rows, size), dtype=wide, device=q_BWHD.device)
    sums = torch.empty((batch * kv_heads, splits, rows, 2), dtype=wide, device=q_BWHD.device)
    out_BWF = torch.empty((batch, width, heads * size), dtype=q_BWHD.dtype, device=q_BWHD.device)
    shapes = {"WIDTH": width, "GROUP": group, "KV_HEADS": kv_heads, "SIZE": size, "SPLITS": splits,
              "SIZE_PAD": triton.next_power_of_2(size), "TOKENS": cut.tokens, "PDL": PDL, **LAUNCH}  # fmt: skip
    _attend_kernel[(batch * kv_heads, splits, triton.cdiv(rows, cut.tile))](
        q_BWHD, kv_2NSHD, block_keys, block_values, span.block_table_BN, span.lengths_B, span.reach_B, partial, sums,
        out_BWF, kv_2NSHD.shape[1] * kv_2NSHD.shape[2], span.block_table_BN.stride(0), span.block_table_BN.shape[1],
        block_keys.stride(0), block_keys.stride(1), block_keys.stride(2), block_values.stride(0),
        block_values.stride(1), block_values.stride(2), size**-0.5 * _LOG2_E,
        BLOCK_SIZE=span.block_size, HAS_BLOCK=keys is not None, TILE=cut.tile,
        WIDE=tl.float64 if wide == torch.float64 else tl.float32,
        num_warps=cut.warps, num_stages=cut.stages, **shapes,
    )  # fmt: skip
    if splits == 1:
        return out_BWF
    merge_rows, merge_warps = _merge_rows(batch * kv_heads, rows)
    _merge_kernel[(batch * kv_heads, triton.cdiv(rows, merge_rows))](
        partial, sums, out_BWF, span.reach_B, ROWS=merge_rows, PARTS=min(splits, _MERGE_PARTS), num_warps=merge_warps,
        **shapes,
    )  # fmt: skip
    return out_BWF


@triton.jit
def _share(total, SPLITS: tl.constexpr, TOKENS: tl.constexpr):
    """Return how many positions each split takes; the splits past the last position have none."""
    return tl.maximum(tl.cdiv(tl.cdiv(total, SPLITS), TOKENS), 1) * TOKENS


@triton.jit
def _attend_kernel(
    q_ptr, kv_ptr, block_k_ptr, block_v_ptr, table_ptr, lengths_ptr, reach_ptr, partial_ptr, sums_ptr, out_ptr,
    places, stride_table, columns, stride_kb, stride_kw, stride_kh, stride_vb, stride_vw, stride_vh, scale,
    BLOCK_SIZE: tl.constexpr, HAS_BLOCK: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr,
    SIZE_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    pair, split = tl.program_id(0), tl.program_id(1)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    row = tl.program_id(2) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, SIZE_PAD)
    fits = (row < WIDTH * GROUP)[:, None] & (column < SIZE)[None, :]
    q_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    # Lengths and tables are settled before the first layer; queries and this span's own keys are not.
    length = tl.load(lengths_ptr + sequence)
    total = tl.load(reach_ptr + sequence)
    await_previous(PDL)
    q = tl.load(q_ptr + q_row[:, None] * SIZE + column[None, :], mask=fits, other=0.0)
    share = _share(total, SPLITS, TOKENS)
    begin = split * share
    first_row = tl.program_id(2) * TILE // GROUP
    last_row = (tl.minimum(tl.program_id(2) * TILE + TILE, WIDTH * GROUP) - 1) // GROUP
    end = tl.minimum(begin + share, total if HAS_BLOCK else tl.minimum(total, length + last_row + 1))
    # Up to here every row of the tile sees every position, so nothing is masked.
    open_end = tl.minimum(end, length if HAS_BLOCK else length + first_row + 1)
    middle = begin + tl.maximum(open_end - begin, 0) // TOKENS * TOKENS
    best = tl.full((TILE,), -1e30, dtype=WIDE)
    mass = tl.zeros((TILE,), dtype=WIDE)
    sum_ = tl.zeros((TILE, SIZE_PAD), dtype=WIDE)
    row_table_ptr, values_ptr = table_ptr + sequence * stride_table, kv_ptr + places * KV_HEADS * SIZE
    for first in range(begin, middle, TOKENS):
        position = first + tl.arange(0, TOKENS)
        place, owned = _place(row_table_ptr, position, position < middle, head, columns, BLOCK_SIZE, KV_HEADS, SIZE)
        reads = owned[:, None] & (column < SIZE)[None, :]
        k = tl.load(kv_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
        v = tl.load(values_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee").to(WIDE) * scale
        best, mass, sum_ = _take(scores, v, best, mass, sum_)
    for first in tl.range(middle, end, TOKENS, num_stages=1):
        position = first + tl.arange(0, TOKENS)
        paged = position < (length if HAS_BLOCK else total)
        place, known = _place(row_table_ptr, position, paged, head, columns, BLOCK_SIZE, KV_HEADS, SIZE)
        reads = known[:, None] & (column < SIZE)[None, :]
        k = tl.load(kv_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
        v = tl.load(values_ptr + place[:, None] + column[None, :], mask=reads, other=0.0)
        if HAS_BLOCK:
            own = (position >= length) & (position < total)
            takes = own[:, None] & (column < SIZE)[None, :]
            k_at = sequence * stride_kb + (position - length) * stride_kw + head * stride_kh
            v_at = sequence * stride_vb + (position - length) * stride_vw + head * stride_vh
            k += tl.load(block_k_ptr + k_at[:, None] + column[None, :], mask=takes, other=0.0)
            v += tl.load(block_v_ptr + v_at[:, None] + column[None, :], mask=takes, other=0.0)
            known = known | own
        sees = known[None, :] & ((position[None, :] <= length + (row // GROUP)[:, None]) | HAS_BLOCK)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee").to(WIDE) * scale
        best, mass, sum_ = _take(tl.where(sees, scores, float("-inf")), v, best, mass, sum_)
    allow_next(PDL)
    known_row = row < WIDTH * GROUP
    if SPLITS == 1:
        value = sum_ / tl.where(mass > 0, mass, 1.0)[:, None]
        tl.store(out_ptr + q_row[:, None] * SIZE + column[None, :], value.to(out_ptr.dtype.element_ty), mask=fits)
    else:
        target = (pair * SPLITS + split).to(tl.int64) * WIDTH * GROUP + row
        used = (begin < total) | (split == 0)
        tl.store(partial_ptr + target[:, None] * SIZE + column[None, :], sum_, mask=fits & used)
        tl.store(sums_ptr + target * 2, best, mask=known_row & used)
        tl.store(sums_ptr + target * 2 + 1, mass, mask=known_row & used)


@triton.jit
def _place(
    table_ptr, position, paged, head, columns, BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr
):
    """Return where a head's keys of some positions are, and whether they may be read.

    The pad block is never read: its contents are anybody's, and zero times NaN is NaN.
    """
    index = position // BLOCK_SIZE
    block = tl.load(table_ptr + index, mask=paged & (index < columns), other=0).to(tl.int64)
    return ((block * BLOCK_SIZE + position % BLOCK_SIZE) * KV_HEADS + head) * SIZE, block != 0


@triton.jit
def _take(scores, v, best, mass, sum_):
    """Add a tile of positions to the running softmax, which is in powers of two; `best` is never infinite."""
    higher = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(best - higher)
    faded = sum_ * fade[:, None]
    sum_ = tl.dot(weights.to(v.dtype), v, faded, input_precision="ieee", out_dtype=sum_.dtype)
    return higher, mass * fade + tl.sum(weights, 1), sum_


@triton.jit
def _merge_kernel(
    partial_ptr, sums_ptr, out_ptr, reach_ptr, ROWS: tl.constexpr, PARTS: tl.constexpr,
    TOKENS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    SPLITS: tl.constexpr, SIZE_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0)
    sequence, head = (pair // KV_HEADS).to(tl.int64), pair % KV_HEADS
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE_PAD)
    known = row < WIDTH * GROUP
    fits = known[:, None] & (column < SIZE)[None, :]
    total = tl.load(reach_ptr + sequence)
    await_previous(PDL)
    used = tl.maximum(tl.cdiv(total, _share(total, SPLITS, TOKENS)), 1)
    split = tl.arange(0, SPLITS)
    at = ((pair * SPLITS + split).to(tl.int64) * WIDTH * GROUP)[None, :] + row[:, None]
    read = known[:, None] & (split < used)[None, :]
    best = tl.load(sums_ptr + at * 2, mask=read, other=-1e30)
    highest = tl.max(best, 1)
    masses = tl.load(sums_ptr + at * 2 + 1, mask=read, other=0.0)
    mass = tl.sum(tl.exp2(best - highest[:, None]) * masses, 1)
    sum_ = tl.zeros((ROWS, SIZE_PAD), dtype=partial_ptr.dtype.element_ty)
    for first in range(0, used, PARTS):
        index = first + tl.arange(0, PARTS)
        place = (pair * SPLITS + index).to(tl.int64)[None, :] * WIDTH * GROUP + row[:, None]
        exists = known[:, None] & (index < used)[None, :]
        fade = tl.exp2(tl.load(sums_ptr + place * 2, mask=exists, other=-1e30) - highest[:, None])
        source = place[:, :, None] * SIZE + column[None, None, :]
        part = tl.load(partial_ptr + source, mask=exists[:, :, None] & (column < SIZE)[None, None, :], other=0.0)
        sum_ += tl.sum(fade[:, :, None] * part, 1)
    allow_next(PDL)
    value = sum_ / tl.where(mass > 0, mass, 1.0)[:, None]
    out_row = (sequence * WIDTH + row // GROUP) * KV_HEADS * GROUP + head * GROUP + row % GROUP
    tl.store(out_ptr + out_row[:, None] * SIZE + column[None, :], value.to(out_ptr.dtype.element_ty), mask=fits)
