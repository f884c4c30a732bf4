"""The walk on the GPU, one program a sequence, in one launch: eight for each draft would take longer than their bytes.

Bytes for B sequences of K positions: B K C (12 + R e) + 2 B K R e. What a position's candidates are does not depend on
the token before, so that their codes are on their way while it is chosen.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_LAST = tl.constexpr(0x7FFFFFFFFFFFFFFF)


def walk_candidates(
    ids_BKC: Tensor,
    scores_BKC: Tensor,
    hidden_BKR: Tensor,
    before_VR: Tensor,
    after_VR: Tensor,
    anchor_B: Tensor,
    scale_B: Tensor | None = None,
) -> Tensor:
    """Return the drafts [B, K]; see the operator."""
    batch, count, candidates = ids_BKC.shape
    rank = hidden_BKR.shape[-1]
    for tensor in (ids_BKC, scores_BKC, hidden_BKR, before_VR, after_VR):
        assert tensor.is_contiguous(), "numbers must lie close together"
    drafts_BK = torch.empty((batch, count), dtype=torch.int64, device=ids_BKC.device)
    walk_kernel[(batch,)](
        ids_BKC, scores_BKC, hidden_BKR, before_VR, after_VR, anchor_B, scale_B, drafts_BK,
        rank, anchor_B.stride(0), COUNT=count,
        CANDIDATES=candidates, PADDED=triton.next_power_of_2(candidates), RANK_PAD=triton.next_power_of_2(rank),
        PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return drafts_BK


@triton.jit
def walk_kernel(
    ids_ptr, scores_ptr, hidden_ptr, before_ptr, after_ptr, anchor_ptr, scale_ptr, drafts_ptr, rank, apart,
    COUNT: tl.constexpr, CANDIDATES: tl.constexpr, PADDED: tl.constexpr, RANK_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Take the best candidate COUNT times; one that is no number is the last."""
    line = tl.program_id(0).to(tl.int64)
    allow_next(PDL)
    await_previous(PDL)
    candidate, column = tl.arange(0, PADDED), tl.arange(0, RANK_PAD)
    there, inside = candidate < CANDIDATES, column < rank
    token = tl.maximum(tl.load(anchor_ptr + line * apart).to(tl.int64), 0)
    scale = 1.0
    if scale_ptr is not None:
        scale = tl.load(scale_ptr + line).to(tl.float32)
    for position in tl.static_range(COUNT):
        at = line * COUNT + position
        ids = tl.load(ids_ptr + at * CANDIDATES + candidate, mask=there, other=0)
        score = tl.load(scores_ptr + at * CANDIDATES + candidate, mask=there, other=float("-inf")).to(tl.float32)
        codes = after_ptr + ids[:, None] * rank + column[None, :]
        after = tl.load(codes, mask=there[:, None] & inside[None, :], other=0.0).to(tl.float32)
        hidden = tl.load(hidden_ptr + at * rank + column, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(before_ptr + token * rank + column, mask=inside, other=0.0).to(tl.float32)
        total = score + tl.sum(after * (before * hidden)[None, :], 1) * scale
        total = tl.where((total == total) & there, total, float("-inf"))
        token = tl.min(tl.where((total == tl.max(total, 0)) & there, ids, _LAST), 0)
        tl.store(drafts_ptr + at, token)
