"""Rounds rows to eight bits on the GPU; one program a row. Bytes for T rows: `T D (e + 1)`."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.linear.int8_weight import MOST
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_MOST = tl.constexpr(float(MOST))
_WHOLE = tl.constexpr(12582912.0)
"""Adding it leaves no digits behind the point, and halfway gives the even number."""
_WARPS = 8


def quantised_rows(rows_TD: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows as integers [T, D], int8, and their scales [T], float32, with the bits of `int8_weight`."""
    rows_TD = rows_TD.contiguous()
    whole_TD = torch.empty(rows_TD.shape, dtype=torch.int8, device=rows_TD.device)
    scale_T = torch.empty(len(rows_TD), dtype=torch.float32, device=rows_TD.device)
    depth = rows_TD.shape[1]
    _quantise_kernel[(len(rows_TD),)](
        rows_TD, whole_TD, scale_T, depth, DEPTH_PAD=triton.next_power_of_2(depth), PDL=PDL, num_warps=_WARPS, **LAUNCH,
    )  # fmt: skip
    return whole_TD, scale_T


@triton.jit
def _quantise_kernel(rows_ptr, whole_ptr, scale_ptr, depth, DEPTH_PAD: tl.constexpr, PDL: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, DEPTH_PAD)
    at, inside = row * depth + column, column < depth
    allow_next(PDL)
    await_previous(PDL)
    numbers = tl.load(rows_ptr + at, mask=inside, other=0.0).to(tl.float32)
    top = tl.max(tl.abs(numbers), 0)
    factor = tl.where(top > 0, tl.div_rn(_MOST, top), 0.0)
    whole = (numbers * factor + _WHOLE) - _WHOLE
    tl.store(whole_ptr + at, whole.to(tl.int8), mask=inside)
    tl.store(scale_ptr + row, tl.div_rn(top, _MOST))
