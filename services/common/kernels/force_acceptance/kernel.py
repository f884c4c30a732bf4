"""One launch on the GPU, a program a row. Bytes for B rows of K drafts: B (8 K + 16), and a sector for each draft."""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.force_acceptance.reference import LIFT
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_LIFT = tl.constexpr(LIFT)


def force_acceptance(logits_BWV: Tensor, drafts_BK: Tensor, rates_K: Tensor, calls_B: Tensor) -> None:
    """Raise or lower the scores of every row's drafts in place."""
    assert logits_BWV.is_contiguous(), "logits must be contiguous"
    assert drafts_BK.is_contiguous(), "drafts must be contiguous"
    batch, width, vocab = logits_BWV.shape
    _force_kernel[(batch,)](
        logits_BWV, drafts_BK, rates_K, calls_B, vocab,
        WIDTH=width, WIDTH_PAD=triton.next_power_of_2(width), PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip


@triton.jit
def _force_kernel(
    logits_ptr, drafts_ptr, rates_ptr, calls_ptr, vocab,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row, offset = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH_PAD)
    known = offset < WIDTH - 1
    call = tl.load(calls_ptr + row)
    tl.store(calls_ptr + row, call + 1)
    word = (row * 0x9E3779B9 + call) & 0xFFFFFFFF
    word = ((word ^ (word >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    word = ((word ^ (word >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    chance = ((word >> 8) ^ (word >> 24)).to(tl.float32) * 5.9604644775390625e-08
    draft = tl.maximum(tl.load(drafts_ptr + row * (WIDTH - 1) + offset, mask=known, other=0), 0)
    lift = tl.where(chance < tl.load(rates_ptr + offset, mask=known, other=0.0), _LIFT, -_LIFT)
    at = (row * WIDTH + offset) * vocab + draft
    tl.store(logits_ptr + at, lift.to(logits_ptr.dtype.element_ty), mask=known)
