"""Bounds of logits on the GPU, one program per row and tile. Bytes for T rows of a bfloat16 product: 6 T V."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_TILE = 2048


def bounded(logits_TV: Tensor, cap: float, room_TV: Tensor | None = None) -> Tensor:
    """Return `cap * tanh(logits / cap)` in float32 or wider, in `room_TV` where that is given."""
    assert logits_TV.is_contiguous(), "logits must be contiguous"
    (rows, vocab), double = logits_TV.shape, logits_TV.dtype == torch.float64
    if room_TV is None:
        room_TV = torch.empty_like(logits_TV, dtype=torch.float64 if double else torch.float32)
    assert room_TV.is_contiguous(), "results must be contiguous"
    _bound_kernel[(rows, triton.cdiv(vocab, _TILE))](
        logits_TV, room_TV, vocab, CAP=cap, TILE=_TILE, WIDE=tl.float64 if double else tl.float32, PDL=PDL, **LAUNCH
    )
    return room_TV


@triton.jit
def tanh(x):
    """Return the hyperbolic tangent of wide numbers, whose ends are finite."""
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit
def _bound_kernel(
    logits_ptr, out_ptr, vocab, CAP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr
):
    allow_next(PDL)
    await_previous(PDL)
    row, token = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    at, inside = row * vocab + token, token < vocab
    logit = tl.load(logits_ptr + at, mask=inside, other=0.0).to(WIDE)
    tl.store(out_ptr + at, CAP * tanh(logit / CAP), mask=inside)
