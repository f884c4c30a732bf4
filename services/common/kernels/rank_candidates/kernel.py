"""The ranking on the GPU in one launch, a program a position: a dozen small ones take longer than their bytes.

Bytes for B sequences of K positions: B K (2 C R e + R e + 4 C C), and ids. A candidate is stored at the place that
its id has among the others: how many are lower.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rank_candidates import rank_candidates as operator

_LEAST = 16
"""Rows and columns that a product of tiles has."""
_MOST_CODES = 1 << 14
"""Numbers of a position's codes: with those before, four bytes each, they lie in shared memory, which holds no more."""
_LAST = tl.constexpr(0x7FFFFFFFFFFFFFFF)


def rank_candidates(
    ids_BKC: Tensor,
    scores_BKC: Tensor,
    hidden_BKR: Tensor,
    before_VR: Tensor,
    after_VR: Tensor,
    anchor_B: Tensor,
    scale_B: Tensor | None = None,
    trust_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return candidates and their log-probabilities; see the operator. Codes that are too wide have its launches."""
    batch, count, candidates = ids_BKC.shape
    rank = hidden_BKR.shape[-1]
    padded, rank_pad = max(triton.next_power_of_2(candidates), _LEAST), max(triton.next_power_of_2(rank), _LEAST)
    if padded * rank_pad > _MOST_CODES:
        return operator.reference(ids_BKC, scores_BKC, hidden_BKR, before_VR, after_VR, anchor_B, scale_B, trust_B)
    for tensor in (ids_BKC, scores_BKC, hidden_BKR, before_VR, after_VR):
        assert tensor.is_contiguous(), "numbers must lie close together"
    sorted_BKC = torch.empty_like(ids_BKC)
    chances_BKPC = torch.empty((*ids_BKC.shape, candidates), dtype=torch.float32, device=ids_BKC.device)
    rank_kernel[(batch * count,)](
        ids_BKC, scores_BKC, hidden_BKR, before_VR, after_VR, anchor_B, scale_B, trust_B, sorted_BKC, chances_BKPC,
        rank, anchor_B.stride(0), COUNT=count, CANDIDATES=candidates, PADDED=padded, RANK_PAD=rank_pad, PDL=PDL,
        **LAUNCH,
    )  # fmt: skip
    return sorted_BKC, chances_BKPC


@triton.jit
def rank_kernel(
    ids_ptr, scores_ptr, hidden_ptr, before_ptr, after_ptr, anchor_ptr, scale_ptr, trust_ptr, sorted_ptr, chances_ptr,
    rank, apart,
    COUNT: tl.constexpr, CANDIDATES: tl.constexpr, PADDED: tl.constexpr, RANK_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Score the candidates of a position behind each of the one before, and store all in the order of ids."""
    at = tl.program_id(0).to(tl.int64)
    line = at // COUNT
    first = at % COUNT == 0
    allow_next(PDL)
    await_previous(PDL)
    candidate, column = tl.arange(0, PADDED), tl.arange(0, RANK_PAD)
    there, inside = candidate < CANDIDATES, column < rank
    ids = tl.load(ids_ptr + at * CANDIDATES + candidate, mask=there, other=_LAST)
    score = tl.load(scores_ptr + at * CANDIDATES + candidate, mask=there, other=float("-inf")).to(tl.float32)
    others_ptr = ids_ptr + tl.where(first, at, at - 1) * CANDIDATES
    others = tl.load(others_ptr + candidate, mask=there, other=_LAST)
    anchor = tl.maximum(tl.load(anchor_ptr + line * apart).to(tl.int64), 0)
    place = _place(ids_ptr + at * CANDIDATES, ids, candidate, CANDIDATES)
    other_place = tl.where(first, candidate, _place(others_ptr, others, candidate, CANDIDATES))
    tl.store(sorted_ptr + at * CANDIDATES + place, ids, mask=there)
    codes = there[:, None] & inside[None, :]
    token = tl.where(there, ids, 0)
    token_before = tl.where(there, tl.where(first, anchor, others), 0)
    after = tl.load(after_ptr + token[:, None] * rank + column[None, :], mask=codes, other=0.0).to(tl.float32)
    before = tl.load(before_ptr + token_before[:, None] * rank + column[None, :], mask=codes, other=0.0).to(tl.float32)
    hidden = tl.load(hidden_ptr + at * rank + column, mask=inside, other=0.0).to(tl.float32)
    pair = tl.dot(before * hidden[None, :], tl.trans(after), input_precision="ieee")
    if scale_ptr is not None:
        pair *= tl.load(scale_ptr + line).to(tl.float32)
    total = score[None, :] + pair
    if trust_ptr is not None:
        total *= tl.load(trust_ptr + line).to(tl.float32)
    total = tl.where((total == total) & there[None, :], total, float("-inf"))
    most = tl.maximum(tl.max(total, 1), -3.0e38)[:, None]
    chance = total - most - tl.log(tl.sum(tl.exp(total - most), 1))[:, None]
    to = (at * CANDIDATES + other_place[:, None]) * CANDIDATES + place[None, :]
    tl.store(chances_ptr + to, tl.where(chance == chance, chance, float("-inf")), mask=there[:, None] & there[None, :])


@triton.jit
def _place(ids_ptr, ids, candidate, CANDIDATES: tl.constexpr):
    """Return how many of the candidates have a lower id, or the same and stand before."""
    place = candidate * 0
    for other in tl.static_range(CANDIDATES):
        beside = tl.load(ids_ptr + other)
        place += ((beside < ids) | ((beside == ids) & (other < candidate))).to(tl.int32)
    return place
