"""Rounds rows to e4m3 codes on the GPU, a program for some groups of a row. Bytes for T rows: `T D (e + 1)`.

Of many rows a program has four times the groups: a thread that waits for eight numbers alone has too few under way.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.linear.grouped.weight import CODE, MOST
from services.common.kernels.linear.persistent.grouped import GROUP
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_MOST, _GROUP = tl.constexpr(MOST), tl.constexpr(GROUP)
_FEW_ROWS = 64
_FEW, _MANY = (8, 4), (32, 8)
"""Groups and warps of a program, of up to so many rows and of more."""


def rounded_rows(rows_TD: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows as codes [T, D] and the scales of their groups [T, D / 128], float32, with the bits of `weight`."""
    rows_TD = rows_TD.contiguous()
    rows, depth = rows_TD.shape
    codes_TD = torch.empty(rows_TD.shape, dtype=CODE, device=rows_TD.device)
    scale_TG = torch.empty((rows, depth // GROUP), dtype=torch.float32, device=rows_TD.device)
    groups, warps = _FEW if rows <= _FEW_ROWS else _MANY
    _round_kernel[(rows, triton.cdiv(depth // GROUP, groups))](
        rows_TD, codes_TD, scale_TG, depth // GROUP, GROUPS=groups, PDL=PDL, num_warps=warps, **LAUNCH,
    )  # fmt: skip
    return codes_TD, scale_TG


@triton.jit
def _round_kernel(rows_ptr, codes_ptr, scale_ptr, groups, GROUPS: tl.constexpr, PDL: tl.constexpr):
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    at = (row * groups + group)[:, None] * _GROUP + tl.arange(0, _GROUP)[None, :]
    inside = group < groups
    allow_next(PDL)
    await_previous(PDL)
    numbers = tl.load(rows_ptr + at, mask=inside[:, None], other=0.0).to(tl.float32)
    top = tl.max(tl.abs(numbers), 1)
    factor = tl.where(top > 0, tl.div_rn(_MOST, top), 0.0)
    tl.store(codes_ptr + at, (numbers * factor[:, None]).to(codes_ptr.dtype.element_ty), mask=inside[:, None])
    tl.store(scale_ptr + row * groups + group, tl.div_rn(top, _MOST), mask=inside)
