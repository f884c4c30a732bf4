"""The best few tokens of each row of a product on the GPU: the best of each group, then those of a few groups.

The best few scores of a row lie in as many groups: those whose own best are the largest. So a first launch reduces each
group once, and a second one, with a program a row, finds the groups and then the scores within them. Bytes for R rows:
R V e, read once, and 8 R a group. A score and its token are one number of 64 bits, in the order of scores and among
equals from the lowest token on, so that finding the best one is one reduction and no two are equal.
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
"""Scores of a program of the first launch."""
GROUP = 16 if INTERPRETED else 256
_NONE = tl.constexpr(-0x7FFFFFFFFFFFFFFF)


def top_of_product(rows_RD: Tensor, weight_VD: Weight, count: int, columns: int = 0) -> tuple[Tensor, Tensor]:
    """Return the best scores [R, count], float32, and their tokens; so many columns are scored at a time."""
    vocab, rows = len(weight_VD), len(rows_RD)
    columns = columns or columns_at_once(rows, vocab)
    pieces = -(-vocab // columns)
    keys_RPC = torch.empty((rows, pieces, count), dtype=torch.int64, device=rows_RD.device)
    for piece in range(pieces):
        scores_RC = linear(rows_RD, lines(weight_VD, piece * columns, (piece + 1) * columns))
        _keep_best(scores_RC, keys_RPC, piece, piece * columns)
    values_RC = torch.empty((rows, count), dtype=torch.float32, device=rows_RD.device)
    ids_RC = torch.empty((rows, count), dtype=torch.int64, device=rows_RD.device)
    row_top_kernel[(rows,)](
        keys_RPC, values_RC, ids_RC, pieces * count, COUNT=count, KEYS_PAD=triton.next_power_of_2(pieces * count),
        PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip
    return values_RC, ids_RC


def _keep_best(scores_RC: Tensor, keys_RPC: Tensor, piece: int, first: int) -> None:
    """Write the best keys of scores whose first token is `first`."""
    rows, columns = scores_RC.shape
    _, pieces, count = keys_RPC.shape
    tiles = int(triton.cdiv(columns, TOP_TILE))
    groups = tiles * (TOP_TILE // GROUP)
    best_RG = torch.empty((rows, groups), dtype=torch.int64, device=scores_RC.device)
    group_best_kernel[(rows, tiles)](
        scores_RC, best_RG, columns, scores_RC.stride(0), groups, TILE=TOP_TILE, GROUP=GROUP, PDL=PDL, **LAUNCH
    )
    groups_top_kernel[(rows,)](
        scores_RC, best_RG, keys_RPC, columns, scores_RC.stride(0), groups, pieces, piece, first, COUNT=count,
        COUNT_PAD=triton.next_power_of_2(count), GROUP=GROUP, GROUPS_PAD=triton.next_power_of_2(groups), PDL=PDL,
        num_warps=8, **LAUNCH,
    )  # fmt: skip


@triton.jit
def group_best_kernel(
    scores_ptr, best_ptr, columns, stride, groups, TILE: tl.constexpr, GROUP: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """Write the best key of each group of a tile; a group behind the last column has none."""
    allow_next(PDL)
    await_previous(PDL)
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    PARTS: tl.constexpr = TILE // GROUP
    group = tile * PARTS + tl.arange(0, PARTS)
    column = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    tl.store(best_ptr + row * groups + group, tl.max(_keys(scores_ptr + row * stride, column, columns, 0), 1))


@triton.jit
def groups_top_kernel(
    scores_ptr, best_ptr, keys_ptr, columns, stride, groups, pieces, piece, first, COUNT: tl.constexpr,
    COUNT_PAD: tl.constexpr, GROUP: tl.constexpr, GROUPS_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the best keys of a row, best first, out of the groups with the best ones."""
    allow_next(PDL)
    await_previous(PDL)
    row, index, place = tl.program_id(0).to(tl.int64), tl.arange(0, GROUPS_PAD), tl.arange(0, COUNT_PAD)
    best = tl.load(best_ptr + row * groups + index, mask=index < groups, other=_NONE)
    chosen = place * 0 + groups
    for rank in tl.static_range(COUNT):
        most = tl.max(best, 0)
        column = 0x7FFFFFFF - (most & 0xFFFFFFFF).to(tl.int32)
        chosen = tl.where((place == rank) & (most != _NONE), column // GROUP, chosen)
        best = tl.where(best == most, _NONE, best)
    column = chosen[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    key = _keys(scores_ptr + row * stride, column, columns, first)
    at = (row * pieces + piece) * COUNT
    for rank in tl.static_range(COUNT):
        most = tl.max(tl.max(key, 1), 0)
        tl.store(keys_ptr + at + rank, most)
        key = tl.where(key == most, _NONE, key)


@triton.jit
def _keys(scores_ptr, column, columns, first):
    """Return scores and tokens of columns as one number each; NaN counts as the least, and -0 as 0."""
    score = tl.load(scores_ptr + column, mask=column < columns, other=float("-inf")).to(tl.float32)
    score = tl.where(score == score, score, float("-inf")) + 0.0
    bits = score.to(tl.int32, bitcast=True)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    return tl.where(column < columns, (order << 32) | (0x7FFFFFFF - first - column).to(tl.int64), _NONE)


@triton.jit
def row_top_kernel(
    keys_ptr, values_ptr, ids_ptr, keys, COUNT: tl.constexpr, KEYS_PAD: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """Write the best scores of a row and their tokens, out of those of its pieces."""
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
