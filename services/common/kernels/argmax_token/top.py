"""The best few tokens of each row of a product on the GPU: the best of each group, then those of a few groups.

The best few scores of a row lie in as many groups: those whose own best are the largest. So a first launch reduces each
group once, and a second one, with a program a row, finds the groups and then the scores within them. Bytes for R rows:
R V e, read once, and 4 R a group. A score and its token, or its group, are one number of 64 bits, in the order of
scores and among equals from the lowest on, so that finding the best one is one reduction and no two are equal. Lower
groups have lower tokens, so the first launch needs no such numbers.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.argmax_token.columns import TILE, columns_at_once
from services.common.kernels.argmax_token.drawn import arguments, drawn
from services.common.kernels.argmax_token.draws import Draws
from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight, lines
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

TOP_TILE = 128 if INTERPRETED else TILE
"""Scores of a program of the first launch."""
GROUP = 16 if INTERPRETED else 256
_NONE = tl.constexpr(-0x7FFFFFFFFFFFFFFF)


def top_of_product(
    rows_RD: Tensor, weight_VD: Weight, count: int, draws: Draws | None = None, columns: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the best scores [R, count], float32, and their tokens; so many columns are scored at a time."""
    vocab, rows = len(weight_VD), len(rows_RD)
    columns = columns or columns_at_once(rows, vocab)
    pieces = -(-vocab // columns)
    keys_RPC = torch.empty((rows if pieces > 1 else 0, pieces, count), dtype=torch.int64, device=rows_RD.device)
    values_RC = torch.empty((rows, count), dtype=torch.float32, device=rows_RD.device)
    ids_RC = torch.empty((rows, count), dtype=torch.int64, device=rows_RD.device)
    for piece in range(pieces):
        scores_RC = linear(rows_RD, lines(weight_VD, piece * columns, (piece + 1) * columns))
        _keep_best(scores_RC, keys_RPC, values_RC, ids_RC, piece, piece * columns, draws)
    if pieces > 1:
        row_top_kernel[(rows,)](
            keys_RPC, values_RC, ids_RC, pieces * count, COUNT=count, KEYS_PAD=triton.next_power_of_2(pieces * count),
            PDL=PDL, num_warps=1, **LAUNCH,
        )  # fmt: skip
    return values_RC, ids_RC


def _keep_best(
    scores_RC: Tensor, keys_RPC: Tensor, values_RC: Tensor, ids_RC: Tensor, piece: int, first: int,
    draws: Draws | None = None,
) -> None:  # fmt: skip
    """Write the best keys of scores whose first token is `first`; of all tokens at once scores and tokens."""
    rows, columns = scores_RC.shape
    _, pieces, count = keys_RPC.shape
    tiles = int(triton.cdiv(columns, TOP_TILE))
    groups = tiles * (TOP_TILE // GROUP)
    best_RG = torch.empty((rows, groups), dtype=torch.float32, device=scores_RC.device)
    noise = arguments(draws, rows)
    group_best_kernel[(rows, tiles)](
        scores_RC, best_RG, columns, scores_RC.stride(0), groups, first, *noise, TILE=TOP_TILE, GROUP=GROUP, PDL=PDL,
        **LAUNCH,
    )  # fmt: skip
    groups_top_kernel[(rows,)](
        scores_RC, best_RG, keys_RPC, values_RC, ids_RC, columns, scores_RC.stride(0), groups, pieces, piece, first,
        *noise, COUNT=count, COUNT_PAD=triton.next_power_of_2(count), GROUP=GROUP,
        GROUPS_PAD=triton.next_power_of_2(groups), WHOLE=pieces == 1, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip


@triton.jit
def group_best_kernel(
    scores_ptr, best_ptr, columns, stride, groups, first,
    rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind,
    TILE: tl.constexpr, GROUP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the best score of each group of a tile."""
    allow_next(PDL)
    await_previous(PDL)
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    PARTS: tl.constexpr = TILE // GROUP
    group = tile * PARTS + tl.arange(0, PARTS)
    score = _scores(
        scores_ptr + row * stride, group, columns, first, row,
        rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind, GROUP,
    )  # fmt: skip
    tl.store(best_ptr + row * groups + group, tl.max(score, 1) + 0.0)


@triton.jit
def groups_top_kernel(
    scores_ptr, best_ptr, keys_ptr, values_ptr, ids_ptr, columns, stride, groups, pieces, piece, first,
    rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind,
    COUNT: tl.constexpr, COUNT_PAD: tl.constexpr, GROUP: tl.constexpr, GROUPS_PAD: tl.constexpr, WHOLE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Write the best keys of a row, best first, out of the groups with the best ones; of a WHOLE row what they say."""
    allow_next(PDL)
    await_previous(PDL)
    row, index, place = tl.program_id(0).to(tl.int64), tl.arange(0, GROUPS_PAD), tl.arange(0, COUNT_PAD)
    score = tl.load(best_ptr + row * groups + index, mask=index < groups, other=float("-inf"))
    # Groups behind the last column have none.
    best = tl.where(index * GROUP < columns, _ordered(score, index), _NONE)
    chosen = place * 0 + groups
    for rank in tl.static_range(COUNT):
        most = tl.max(best, 0)
        group = 0x7FFFFFFF - (most & 0xFFFFFFFF).to(tl.int32)
        chosen = tl.where((place == rank) & (most != _NONE), group, chosen)
        best = tl.where(best == most, _NONE, best)
    score = _scores(
        scores_ptr + row * stride, chosen, columns, first, row,
        rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind, GROUP,
    )  # fmt: skip
    column = chosen[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    key = tl.where(column < columns, _ordered(score + 0.0, first + column), _NONE)
    at = (row * pieces + piece) * COUNT
    for rank in tl.static_range(COUNT):
        most = tl.max(tl.max(key, 1), 0)
        if WHOLE:
            _tell(most, values_ptr + at + rank, ids_ptr + at + rank)
        else:
            tl.store(keys_ptr + at + rank, most)
        key = tl.where(key == most, _NONE, key)


@triton.jit
def _scores(
    scores_ptr, group, columns, first, row,
    rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind, GROUP: tl.constexpr,
):  # fmt: skip
    """Return the scores [groups, GROUP] of some groups of a row, with its noise; NaN counts as the least."""
    column = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    score = tl.load(scores_ptr + column, mask=column < columns, other=float("-inf")).to(tl.float32)
    score = drawn(
        score, first + group[:, None] * GROUP, first + columns, row,
        rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind, GROUP,
    )  # fmt: skip
    return tl.where(score == score, score, float("-inf"))


@triton.jit
def _ordered(score, place):
    """Return numbers in the order of scores, none of which is -0, and among equals from the lowest place on."""
    bits = score.to(tl.int32, bitcast=True)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    return (order << 32) | (0x7FFFFFFF - place).to(tl.int64)


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
        _tell(best, values_ptr + row * COUNT + rank, ids_ptr + row * COUNT + rank)


@triton.jit
def _tell(key, value_ptr, id_ptr):
    """Write the score and the token of a number."""
    order = (key >> 32).to(tl.int32)
    tl.store(value_ptr, (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True))
    tl.store(id_ptr, 0x7FFFFFFF - (key & 0xFFFFFFFF))
