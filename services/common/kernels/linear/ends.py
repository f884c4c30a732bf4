"""What follows a product of many rows that the library made: its norm, and what it gates.

One program per row and tile of columns. Bytes for T rows, F columns: 2 T F e, or 3 T F e with rows to gate.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.linear.program import gated_by
from services.common.kernels.normed import Normed
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.sums import row_scale

_TILE = 1024


def end_rows(product_TF: Tensor, normed: Normed, mixed_TF: Tensor | None, eps: float) -> Tensor:
    """Divide the product of a norm's rows by its root, where that waits, in place; or gate rows by it in theirs.

    Roundings are those of a product that ends so itself.
    """
    out_TF = product_TF if mixed_TF is None else mixed_TF
    assert product_TF.is_contiguous(), "rows must be contiguous"
    assert out_TF.is_contiguous(), "rows must be contiguous"
    rows, width = product_TF.shape
    _end_kernel[(rows, triton.cdiv(width, _TILE))](
        product_TF, normed.squares_T, out_TF, width, 1.0 / normed.width, eps,
        GATES=mixed_TF is not None, TILE=_TILE,
        WIDE=tl.float64 if product_TF.dtype == torch.float64 else tl.float32, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return out_TF


@triton.jit
def _end_kernel(
    product_ptr, squares_ptr, out_ptr, width, inverse_width, eps,
    GATES: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside, at = column < width, row * width + column
    result = tl.load(product_ptr + at, mask=inside, other=0.0).to(WIDE)
    if squares_ptr is not None:
        result = result * row_scale(squares_ptr, row, inverse_width, eps)
    if GATES:
        result = gated_by(tl.load(out_ptr + at, mask=inside, other=0.0).to(WIDE), result)
    tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=inside)
