"""The best few tokens of each row of a product on the GPU: those of each tile, then those of a row, in two launches.

Bytes for R rows: R V e, read once, and 8 R C a tile. A score and its token are one number of 64 bits, in the order of
scores and among equals from the lowest token on, so that finding the best one is one reduction.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.argmax_token.columns import TILE, columns_at_once
from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight, lines
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

TOP_TILE = 128 if INTERPRETED else TILE
_NONE = tl.constexpr(-0x7FFFFFFFFFFFFFFF)


def top_of_product(rows_RD: Tensor, weight_VD: Weight, count: int, columns: int = 0) -> tuple[Tensor, Tensor]:
    """Return the best scores [R, count], float32, and their tokens; so many columns are scored at a time."""
    vocab, rows = len(weight_VD), len(rows_RD)
    columns = columns or columns_at_once(rows, vocab)
    tiles = int(triton.cdiv(vocab, TOP_TILE))
    keys_RTC = torch.empty((rows, tiles, count), dtype=torch.int64, device=rows_RD.device)
    for first in range(0, vocab, columns):
        scores_RC = linear(rows_RD, lines(weight_VD, first, first + columns))
        tile_top_kernel[(rows, triton.cdiv(scores_RC.shape[1], TOP_TILE))](
            scores_RC, keys_RTC, scores_RC.shape[1], scores_RC.stride(0), first, tiles, COUNT=count, TILE=TOP_TILE,
            PDL=PDL, **LAUNCH,
        )  # fmt: skip
    values_RC = torch.empty((rows, count), dtype=torch.float32, device=rows_RD.device)
    ids_RC = torch.empty((rows, count), dtype=torch.int64, device=rows_RD.device)
    row_top_kernel[(rows,)](
        keys_RTC, values_RC, ids_RC, tiles * count, COUNT=count, KEYS_PAD=triton.next_power_of_2(tiles * count),
        PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return values_RC, ids_RC


@triton.jit
def tile_top_kernel(
    scores_ptr, keys_ptr, columns, stride, first, tiles, COUNT: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """Write the best scores of a tile with their tokens, best first; NaN counts as the least."""
    allow_next(PDL)
    await_previous(PDL)
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tile * TILE + tl.arange(0, TILE)
    score = tl.load(scores_ptr + row * stride + column, mask=column < columns, other=float("-inf")).to(tl.float32)
    score = tl.where(score == score, score, float("-inf")) + 0.0  # -0 becomes 0, so that both are equal
    bits = score.to(tl.int32, bitcast=True)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    key = tl.where(column < columns, (order << 32) | (0x7FFFFFFF - first - column).to(tl.int64), _NONE)
    at = (row * tiles + first // TILE + tile) * COUNT
    for rank in tl.static_range(COUNT):
        best = tl.max(key, 0)
        tl.store(keys_ptr + at + rank, best)
        key = tl.where(key == best, _NONE, key)


@triton.jit
def row_top_kernel(
    keys_ptr, values_ptr, ids_ptr, keys, COUNT: tl.constexpr, KEYS_PAD: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """Write the best scores of a row and their tokens, out of those of its tiles."""
    allow_next(PDL)
    await_previous(PDL)
    row, index = tl.program_id(0).to(tl.int64), tl.arange(0, KEYS_PAD)
    key = tl.load(keys_ptr + row * keys + index, mask=index < keys, other=_NONE)
    for rank in tl.static_range(COUNT):
        best = tl.max(key, 0)
        key = tl.where(key == best, _NONE, key)
        order = (best >> 32).to(tl.int32)
        value = (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        tl.store(values_ptr + row * COUNT + rank, value)
        tl.store(ids_ptr + row * COUNT + rank, 0x7FFFFFFF - (best & 0xFFFFFFFF))
