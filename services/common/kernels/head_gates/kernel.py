"""Gates of heads on the GPU, one program per row and tile of columns. Bytes for T rows of F columns: 2 T F e."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_TILE = 1024


def gate_heads(mixed_TF: Tensor, gates_TH: Tensor) -> Tensor:
    """Multiply heads of rows by the softplus of their gates, in place; return the rows."""
    assert mixed_TF.is_contiguous(), "rows must be contiguous"
    assert gates_TH.is_contiguous(), "gates must be contiguous"
    (rows, width), heads = mixed_TF.shape, gates_TH.shape[1]
    _gate_kernel[(rows, triton.cdiv(width, _TILE))](
        mixed_TF, gates_TH, width, heads, SIZE=width // heads, TILE=_TILE,
        WIDE=tl.float64 if mixed_TF.dtype == torch.float64 else tl.float32, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return mixed_TF


@triton.jit
def _gate_kernel(
    mixed_ptr, gates_ptr, width, heads,
    SIZE: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside, at = column < width, row * width + column
    gate = tl.load(gates_ptr + row * heads + column // SIZE, mask=inside, other=0.0).to(WIDE)
    mixed = tl.load(mixed_ptr + at, mask=inside, other=0.0)
    soft = tl.maximum(gate, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(gate)))
    tl.store(mixed_ptr + at, (mixed.to(WIDE) * soft).to(mixed.dtype), mask=inside)
