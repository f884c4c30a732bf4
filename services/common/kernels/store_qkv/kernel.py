"""Head norms, rotation and K/V store in one pass on the GPU, one program per row and head.

Bytes for T rows: 2 T (Hq + 2 Hkv) D e, plus the tables' rows. Separate kernels would read keys and values twice and
launch three times a layer instead of once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.overlap import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.kernel import turn_head


def store_qkv(
    mixed_TF: Tensor, weight_HD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor, eps: float
) -> Tensor:
    """Return the rotated queries; store the rotated keys and the values at the rows' flat slots."""
    assert mixed_TF.is_contiguous(), "rows must be contiguous"
    assert kv_2NSHD.is_contiguous(), "K/V must be contiguous"
    count, turning, size, kv_heads = len(mixed_TF), *weight_HD.shape, kv_2NSHD.shape[3]
    queries = turning - kv_heads
    q_THD = torch.empty((count, queries, size), dtype=mixed_TF.dtype, device=mixed_TF.device)
    wide = tl.float64 if mixed_TF.dtype == torch.float64 else tl.float32
    _store_qkv_kernel[(count, turning + kv_heads)](
        mixed_TF, weight_HD, rotation.cos_T1D, rotation.sin_T1D, q_THD, kv_2NSHD, slots_T,
        kv_2NSHD.shape[1] * kv_2NSHD.shape[2], eps,
        QUERIES=queries, KV_HEADS=kv_heads, SIZE=size, SIZE_PAD=triton.next_power_of_2(size), WIDE=wide,
        PDL=PDL, num_warps=1, **LAUNCH,
    )  # fmt: skip
    return q_THD


@triton.jit
def _store_qkv_kernel(
    mixed_ptr, weight_ptr, cos_ptr, sin_ptr, q_ptr, kv_ptr, slots_ptr, places, eps,
    QUERIES: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, WIDE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, SIZE_PAD)
    inside = column < SIZE
    x_ptr = mixed_ptr + (row * (QUERIES + 2 * KV_HEADS) + head) * SIZE
    slot = tl.load(slots_ptr + row).to(tl.int64)
    if head < QUERIES + KV_HEADS:
        turned = turn_head(
            x_ptr, weight_ptr + head * SIZE, cos_ptr + row * SIZE, sin_ptr + row * SIZE, eps, SIZE, SIZE_PAD, WIDE
        ).to(q_ptr.dtype.element_ty)
        if head < QUERIES:
            tl.store(q_ptr + (row * QUERIES + head) * SIZE + column, turned, mask=inside)
        else:
            tl.store(kv_ptr + (slot * KV_HEADS + head - QUERIES) * SIZE + column, turned, mask=inside)
    else:
        value = tl.load(x_ptr + column, mask=inside)
        target = kv_ptr + ((places + slot) * KV_HEADS + head - QUERIES - KV_HEADS) * SIZE + column
        tl.store(target, value, mask=inside)
