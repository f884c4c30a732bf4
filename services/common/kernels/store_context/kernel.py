"""Key norms, rotation and K/V store of all layers of a draft context on the GPU, one program per row, half and heads.

Bytes for T rows: 2 T (2 L H D) e, plus the tables' rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.rope import Rotation
from services.common.kernels.rope.kernel import GROUP, turn_heads


def store_context(
    mixed_TF: Tensor, norm_LHD: Tensor, rotation: Rotation, kv_L2NSHD: Tensor, slots_T: Tensor, eps: float
) -> None:
    """Store the rotated keys and the values of all layers at the rows' flat slots."""
    assert mixed_TF.is_contiguous(), "rows must be contiguous"
    assert kv_L2NSHD.is_contiguous(), "K/V must be contiguous"
    layers, heads, size = norm_LHD.shape
    wide = tl.float64 if mixed_TF.dtype == torch.float64 else tl.float32
    _store_context_kernel[(len(mixed_TF), layers * 2, triton.cdiv(heads, GROUP))](
        mixed_TF, norm_LHD, rotation.cos_T1D, rotation.sin_T1D, kv_L2NSHD, slots_T,
        kv_L2NSHD.shape[2] * kv_L2NSHD.shape[3], eps,
        HEADS=heads, SIZE=size, HALF_PAD=triton.next_power_of_2(size // 2), WIDE=wide, GROUP=GROUP,
    )  # fmt: skip


@triton.jit
def _store_context_kernel(
    mixed_ptr, weight_ptr, cos_ptr, sin_ptr, kv_ptr, slots_ptr, places, eps,
    HEADS: tl.constexpr, SIZE: tl.constexpr, HALF_PAD: tl.constexpr, WIDE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Halves are a layer's keys, its values, the next layer's keys and so on."""
    row, half = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    head = tl.program_id(2) * GROUP + tl.arange(0, GROUP)
    fits = head < HEADS
    mixed_ptr += (row * tl.num_programs(1) + half) * HEADS * SIZE
    place = half * places + tl.load(slots_ptr + row).to(tl.int64)
    target = kv_ptr + (place * HEADS + head) * SIZE
    if half % 2 == 0:
        weight_ptr += half // 2 * HEADS * SIZE
        cos_ptr += row * SIZE
        sin_ptr += row * SIZE
        turn_heads(
            mixed_ptr, target, head, fits, None, weight_ptr, cos_ptr, sin_ptr, 1.0, eps, SIZE, HALF_PAD, WIDE, 0.0
        )
    else:
        column = tl.arange(0, 2 * HALF_PAD)
        takes = fits[:, None] & (column < SIZE)[None, :]
        value = tl.load(mixed_ptr + head[:, None] * SIZE + column[None, :], mask=takes, other=0.0)
        tl.store(target[:, None] + column[None, :], value, mask=takes)
