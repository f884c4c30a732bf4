"""SwiGLU and GeGLU on the GPU, one program per row and tile of columns. Bytes for T rows, I columns: 3 T I e."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.sums import row_scale

_TILE = 1024


def swiglu(
    gate_up_TF: Tensor, squares_T: Tensor | None = None, width: int = 0, eps: float = 0.0, gelu: bool = False
) -> Tensor:
    """Return `silu(gate) * up` [T, I] of a [T, 2 I] tensor that holds both, gate first; with `gelu` that of its gate.

    With the squares of rows that were `width` wide, both are divided by their root mean square first.
    """
    assert gate_up_TF.is_contiguous(), "rows must be contiguous"
    rows, inner = gate_up_TF.shape[0], gate_up_TF.shape[1] // 2
    out_TI = torch.empty((rows, inner), dtype=gate_up_TF.dtype, device=gate_up_TF.device)
    wide = tl.float64 if gate_up_TF.dtype == torch.float64 else tl.float32
    _swiglu_kernel[(rows, triton.cdiv(inner, _TILE))](
        gate_up_TF, squares_T, out_TI, inner, 1.0 / max(width, 1), eps,
        TILE=_TILE, WIDE=wide, GELU=gelu, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return out_TI


@triton.jit
def activated(gate, GELU: tl.constexpr):
    """Return SiLU of numbers, or GELU by tanh's approximation, which is a number times a sigmoid, too."""
    if GELU:
        # Twice the root of 2 / pi.
        return gate / (1.0 + tl.exp(-1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)))
    return gate / (1.0 + tl.exp(-gate))


@triton.jit
def _swiglu_kernel(
    gate_up_ptr, squares_ptr, out_ptr, inner, inverse_width, eps,
    TILE: tl.constexpr, WIDE: tl.constexpr, GELU: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < inner
    gate = tl.load(gate_up_ptr + row * 2 * inner + column, mask=inside, other=0.0)
    up = tl.load(gate_up_ptr + row * 2 * inner + inner + column, mask=inside, other=0.0).to(WIDE)
    wide = gate.to(WIDE)
    if squares_ptr is not None:
        scale = row_scale(squares_ptr, row, inverse_width, eps)
        wide, up = wide * scale, up * scale
    tl.store(out_ptr + row * inner + column, (activated(wide, GELU) * up).to(gate.dtype), mask=inside)
