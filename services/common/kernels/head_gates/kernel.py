"""Gates of heads on the GPU, one program per row and tile of columns. Bytes for T rows of F columns: 2 T F e."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.normed import Normed
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.sums import row_scale

_TILE = 1024


def gate_heads(mixed_TF: Tensor, gates_TH: Tensor, normed: Normed | None = None, eps: float = 0.0) -> Tensor:
    """Multiply heads of rows by the softplus of their gates, in place; return the rows.

    Gates that a product made of rows which wait for their norm are divided by its root first, with `linear_normed`'s
    roundings.
    """
    assert mixed_TF.is_contiguous(), "rows must be contiguous"
    assert gates_TH.stride(1) == 1, "gates of a row lie side by side"
    (rows, width), heads = mixed_TF.shape, gates_TH.shape[1]
    squares_T = None if normed is None else normed.squares_T
    _gate_kernel[(rows, triton.cdiv(width, _TILE))](
        mixed_TF, gates_TH, squares_T, width, gates_TH.stride(0), 1.0 / (normed.width if normed else 1), eps,
        SIZE=width // heads, TILE=_TILE,
        WIDE=tl.float64 if mixed_TF.dtype == torch.float64 else tl.float32, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return mixed_TF


@triton.jit
def _gate_kernel(
    mixed_ptr, gates_ptr, squares_ptr, width, stride, inverse_width, eps,
    SIZE: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside, at = column < width, row * width + column
    gate = tl.load(gates_ptr + row * stride + column // SIZE, mask=inside, other=0.0)
    if squares_ptr is not None:
        gate = (gate.to(WIDE) * row_scale(squares_ptr, row, inverse_width, eps)).to(gate.dtype)
    gate = gate.to(WIDE)
    mixed = tl.load(mixed_ptr + at, mask=inside, other=0.0)
    soft = tl.maximum(gate, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(gate)))
    tl.store(mixed_ptr + at, (mixed.to(WIDE) * soft).to(mixed.dtype), mask=inside)
