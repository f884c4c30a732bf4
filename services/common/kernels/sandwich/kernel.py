"""Two norms and the sum between them on the GPU, one program a row.

Bytes for T rows of width D and e bytes an element: 4 T D e. Sums of squares have no order (`sums.py`).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.normed import Normed
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight
from services.common.kernels.sums import root_scale, squares


def add_normed(
    fed_TD: Tensor,
    stream_TD: Tensor,
    own_norm_D: Tensor,
    next_norm_D: Tensor,
    squares_T: Tensor,
    eps: float,
    offset: float = 0.0,
    scale_1: Tensor | None = None,
) -> tuple[Normed, Tensor]:
    """Return the norm of `(stream + norm(fed)) * scale` as the next product takes it, and that sum."""
    assert stream_TD.dtype != torch.float64, "squares are made of 32 bits at most"
    assert fed_TD.is_contiguous(), "rows must be contiguous"
    assert stream_TD.is_contiguous(), "rows must be contiguous"
    rows, width = stream_TD.shape
    total_TD, scaled_TD = torch.empty_like(stream_TD), torch.empty_like(stream_TD)
    _add_normed_kernel[(rows,)](
        fed_TD, stream_TD, own_norm_D, next_norm_D, scale_1, total_TD, scaled_TD, squares_T, width, 1.0 / width, eps,
        WIDTH_PAD=triton.next_power_of_2(width), OFFSET=offset, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip
    return Normed(scaled_TD, squares_T), total_TD


@triton.jit
def normalised(x, weight_ptr, column, inside, inverse_width, eps, OFFSET: tl.constexpr):
    """Return a wide row of zeros behind its end, divided by its root mean square, times the norm's weight."""
    weight = norm_weight(tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32), OFFSET)
    return x * root_scale(tl.sum(squares(x), 0), inverse_width, eps) * weight


@triton.jit
def leave_sum(
    fed, stream_ptr, next_norm_ptr, scale_ptr, total_ptr, scaled_ptr, squares_ptr, row, column, inside, width,
    OFFSET: tl.constexpr,
):  # fmt: skip
    """Store the sum of a wide row and the stream, rounded once, and begin its norm."""
    at = row * width + column
    stream = tl.load(stream_ptr + at, mask=inside, other=0.0)
    total = stream.to(tl.float32) + fed
    if scale_ptr is not None:
        total *= tl.load(scale_ptr).to(tl.float32)
    total = total.to(stream.dtype)
    tl.store(total_ptr + at, total, mask=inside)
    weight = norm_weight(tl.load(next_norm_ptr + column, mask=inside, other=0.0).to(tl.float32), OFFSET)
    wide = tl.where(inside, total.to(tl.float32), 0.0)
    tl.store(scaled_ptr + at, (wide * weight).to(stream.dtype), mask=inside)
    tl.store(squares_ptr + row, tl.sum(squares(wide), 0))


@triton.jit
def _add_normed_kernel(
    fed_ptr, stream_ptr, own_norm_ptr, next_norm_ptr, scale_ptr, total_ptr, scaled_ptr, squares_ptr, width,
    inverse_width, eps, WIDTH_PAD: tl.constexpr, OFFSET: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH_PAD)
    inside = column < width
    allow_next(PDL)
    await_previous(PDL)
    fed = tl.load(fed_ptr + row * width + column, mask=inside, other=0.0).to(tl.float32)
    fed = normalised(fed, own_norm_ptr, column, inside, inverse_width, eps, OFFSET)
    leave_sum(
        fed, stream_ptr, next_norm_ptr, scale_ptr, total_ptr, scaled_ptr, squares_ptr, row, column, inside, width,
        OFFSET,
    )  # fmt: skip
