"""SwiGLU on the GPU, one program per row and tile of columns. Bytes for T rows, I columns: 3 T I e."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_TILE = 1024


def swiglu(gate_up_TF: Tensor) -> Tensor:
    """Return `silu(gate) * up` [T, I] of a [T, 2 I] tensor that holds both, gate first."""
    assert gate_up_TF.is_contiguous(), "rows must be contiguous"
    rows, inner = gate_up_TF.shape[0], gate_up_TF.shape[1] // 2
    out_TI = torch.empty((rows, inner), dtype=gate_up_TF.dtype, device=gate_up_TF.device)
    wide = tl.float64 if gate_up_TF.dtype == torch.float64 else tl.float32
    _swiglu_kernel[(rows, triton.cdiv(inner, _TILE))](
        gate_up_TF, out_TI, inner, TILE=_TILE, WIDE=wide, PDL=PDL, **LAUNCH
    )
    return out_TI


@triton.jit
def _swiglu_kernel(gate_up_ptr, out_ptr, inner, TILE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr):
    allow_next(PDL)
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < inner
    gate = tl.load(gate_up_ptr + row * 2 * inner + column, mask=inside, other=0.0)
    up = tl.load(gate_up_ptr + row * 2 * inner + inner + column, mask=inside, other=0.0).to(WIDE)
    wide = gate.to(WIDE)
    tl.store(out_ptr + row * inner + column, (wide / (1.0 + tl.exp(-wide)) * up).to(gate.dtype), mask=inside)
