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
    return begin_rows(ids_T, weight_VD, scale)[0]


def begin_rows(
    ids_T: Tensor, weight_VD: Tensor, scale: float = 1.0, norms: int = 0, slots_T: Tensor | None = None, least: int = 0
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the rows of flat ids times `scale`, zeros [norms, T], int64, and which rows have a slot from `least` on.

    Two operators of torch would do the rest, in two launches more, behind which none begins early.
    """
    assert weight_VD.is_contiguous(), "the table must be contiguous"
    (vocab, width), rows = weight_VD.shape, len(ids_T)
    out_TD = torch.empty((rows, width), dtype=weight_VD.dtype, device=weight_VD.device)
    squares_NT = torch.empty((norms, rows), dtype=torch.int64, device=weight_VD.device)
    live_T = None if slots_T is None else torch.empty(rows, dtype=torch.bool, device=weight_VD.device)
    _embedding_kernel[(rows,)](
        ids_T, weight_VD, out_TD, squares_NT, slots_T, live_T, vocab, width, norms, least,
        WIDTH_PAD=triton.next_power_of_2(width), NORMS_PAD=triton.next_power_of_2(norms) if norms else 0, SCALE=scale,
        WIDE=tl.float64 if out_TD.dtype == torch.float64 else tl.float32, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return out_TD, squares_NT, live_T


@triton.jit
def _embedding_kernel(
    ids_ptr, weight_ptr, out_ptr, squares_ptr, slots_ptr, live_ptr, vocab, width, norms, least,
    WIDTH_PAD: tl.constexpr, NORMS_PAD: tl.constexpr, SCALE: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    # It lets no kernel start before its end: the first layer reads the places of its rows before it waits for a
    # predecessor.
    await_previous(PDL)
    token = tl.load(ids_ptr + row).to(tl.int64)
    if slots_ptr is not None:
        tl.store(live_ptr + row, tl.load(slots_ptr + row) >= least)
    if NORMS_PAD > 0:
        norm = tl.arange(0, NORMS_PAD)
        tl.store(squares_ptr + norm * tl.num_programs(0) + row, 0, mask=norm < norms)
    token = tl.where((token >= 0) & (token < vocab), token, 0)
    column = tl.arange(0, WIDTH_PAD)
    inside = column < width
    value = tl.load(weight_ptr + token * width + column, mask=inside)
    if SCALE != 1.0:
        value = (value.to(WIDE) * SCALE).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * width + column, value, mask=inside)
