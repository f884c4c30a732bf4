"""Embedding gather on the GPU, one program a row. Bytes for T rows of width D: 2 T D e.

An id outside the table reads row 0: graph replays must not fault on the leftovers of a pad row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, await_previous


def embedding(ids_T: Tensor, weight_VD: Tensor, scale: float = 1.0) -> Tensor:
    """Return the rows of flat ids times `scale`."""
    assert weight_VD.is_contiguous(), "the table must be contiguous"
    vocab, width = weight_VD.shape
    out_TD = torch.empty((len(ids_T), width), dtype=weight_VD.dtype, device=weight_VD.device)
    _embedding_kernel[(len(ids_T),)](
        ids_T, weight_VD, out_TD, vocab, width, WIDTH_PAD=triton.next_power_of_2(width), SCALE=scale,
        WIDE=tl.float64 if out_TD.dtype == torch.float64 else tl.float32, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return out_TD


@triton.jit
def _embedding_kernel(
    ids_ptr, weight_ptr, out_ptr, vocab, width,
    WIDTH_PAD: tl.constexpr, SCALE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    # It lets no kernel start before its end: the first layer reads the places of its rows before it waits for a
    # predecessor.
    await_previous(PDL)
    token = tl.load(ids_ptr + row).to(tl.int64)
    token = tl.where((token >= 0) & (token < vocab), token, 0)
    column = tl.arange(0, WIDTH_PAD)
    inside = column < width
    value = tl.load(weight_ptr + token * width + column, mask=inside)
    if SCALE != 1.0:
        value = (value.to(WIDE) * SCALE).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * width + column, value, mask=inside)
