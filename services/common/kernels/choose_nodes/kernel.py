"""The choice on the GPU, one program a sequence: it holds every child of every node, and takes the best one each time.

Bytes for B sequences of K positions: B K C (8 + 4 P). Sums are float64, as in the reference, so that equal scores are
equal in both. A child's number holds what decides among equals: its depth, rank and parent, then its candidate.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_MOST = 64
"""Rows of a tree, and of a block, and candidates of a position."""
_LAST = tl.constexpr(0x7FFFFFFF)


def choose_nodes(ids_BKC: Tensor, scores_BKPC: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return tokens and parents of the best nodes of each sequence; see the operator."""
    batch, positions, befores, candidates = scores_BKPC.shape
    assert max(count + 1, positions, candidates) <= _MOST, "a tree's numbers have six bits"
    ids_BKC, scores_BKPC = ids_BKC.contiguous(), scores_BKPC.contiguous()
    tokens_BK = torch.empty((batch, count), dtype=torch.int64, device=ids_BKC.device)
    parents_BK = torch.empty_like(tokens_BK)
    choose_nodes_kernel[(batch,)](
        ids_BKC, scores_BKPC, tokens_BK, parents_BK, COUNT=count, ROWS_PAD=triton.next_power_of_2(count + 1),
        POSITIONS=positions, BEFORES=befores, CANDIDATES=candidates, PADDED=triton.next_power_of_2(candidates),
        PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip
    return tokens_BK, parents_BK


@triton.jit
def choose_nodes_kernel(
    ids_ptr, scores_ptr, tokens_ptr, parents_ptr,
    COUNT: tl.constexpr, ROWS_PAD: tl.constexpr, POSITIONS: tl.constexpr, BEFORES: tl.constexpr,
    CANDIDATES: tl.constexpr, PADDED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Take the best child COUNT times; each node that is taken brings its own children, to a row of theirs.

    All numbers are one warp's, so that a choice is a few exchanges among its threads, without shared memory.
    """
    line = tl.program_id(0).to(tl.int64)
    allow_next(PDL)
    await_previous(PDL)
    parent, candidate, other = (
        tl.arange(0, ROWS_PAD)[:, None],
        tl.arange(0, PADDED)[None, :],
        tl.arange(0, PADDED)[:, None],
    )
    ids_ptr += line * POSITIONS * CANDIDATES
    scores_ptr += line * POSITIONS * BEFORES * CANDIDATES
    cost, number = _children(scores_ptr, 0, 0, 0, candidate, other, 0.0, POSITIONS, BEFORES, CANDIDATES)
    costs, numbers = tl.where(parent == 0, cost, float("inf")), tl.where(parent == 0, number, _LAST)
    for draft in range(COUNT):
        least = tl.min(tl.reshape(costs, (ROWS_PAD * PADDED,), can_reorder=True), 0)
        best = tl.where(costs == least, numbers, _LAST)
        chosen = tl.min(tl.reshape(best, (ROWS_PAD * PADDED,), can_reorder=True), 0)
        exists = least < float("inf")
        depth, follows, choice = chosen >> 18, (chosen >> 6) & 63, chosen & 63
        before = choice if BEFORES > 1 else 0
        cost, number = _children(
            scores_ptr, depth + 1, before, draft + 1, candidate, other, least, POSITIONS, BEFORES, CANDIDATES
        )  # fmt: skip
        costs = tl.where(numbers == chosen, float("inf"), costs)
        costs = tl.where(parent == draft + 1, cost, costs)  # infinite behind none
        numbers = tl.where(parent == draft + 1, number, numbers)
        token = tl.load(ids_ptr + depth * CANDIDATES + choice, mask=exists, other=-1)
        tl.store(tokens_ptr + line * COUNT + draft, tl.where(exists, token, -1))
        tl.store(parents_ptr + line * COUNT + draft, tl.where(exists, follows, 0).to(tl.int64))


@triton.jit
def _children(
    scores_ptr, depth, before, parent, candidate, other, above,
    POSITIONS: tl.constexpr, BEFORES: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Return costs and numbers of a node's children: the sum of what its path is unlikely by, and its order.

    The rank of a candidate is how many of the same place are better.
    """
    inside = depth < POSITIONS
    scores_ptr += (depth * BEFORES + before) * CANDIDATES
    score = tl.load(scores_ptr + candidate, mask=inside & (candidate < CANDIDATES), other=float("-inf"))
    beside = tl.load(scores_ptr + other, mask=inside & (other < CANDIDATES), other=float("-inf"))
    score = tl.where(score == score, score, float("-inf"))
    beside = tl.where(beside == beside, beside, float("-inf"))
    better = (beside > score) | ((beside == score) & (other < candidate))
    rank = tl.sum((better & (other < CANDIDATES)).to(tl.int32), 0)[None, :]
    number = (depth << 18) | (rank << 12) | (parent << 6) | candidate
    return above - score.to(tl.float64), number
