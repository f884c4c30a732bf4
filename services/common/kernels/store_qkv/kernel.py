"""Head norms, rotation and K/V store in one pass on the GPU, one program per row and group of heads.

Bytes for T rows: 2 T (Hq + 2 Hkv) D e, plus the tables' rows. Separate kernels would read keys and values twice and
launch three times a layer instead of once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.kv_codes.kernel import store_halves, store_heads
from services.common.kernels.linear import Normed, linear
from services.common.kernels.linear.weight import Weight
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.kernel import GROUP, load_heads, turn_heads, turned_heads
from services.common.kernels.sums import root_scale, row_scale, squares


def project_qkv(
    normed: Normed,
    qkv_FD: Weight,
    norm_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    slots_T: Tensor,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
    exponents_2NSH: Tensor | None = None,
    v_norm: bool = False,
) -> Tensor:
    """Return the rotated queries; store the rotated keys and the values at the rows' flat slots."""
    mixed = Normed(linear(normed.rows_TD, qkv_FD), normed.squares_T)
    return store_qkv(
        mixed, norm_HD, rotation, kv_2NSHD, slots_T, eps, bias_F, offset, normed.width, exponents_2NSH, v_norm
    )


def store_qkv(
    mixed: Normed,
    weight_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    slots_T: Tensor,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
    width: int = 0,
    exponents_2NSH: Tensor | None = None,
    v_norm: bool = False,
) -> Tensor:
    """Return the rotated queries; store the rotated keys and the values at the rows' flat slots.

    `mixed` is the projection of rows that were `width` wide; with their squares it is divided by their norm first.
    """
    mixed_TF = mixed.rows_TD
    assert mixed_TF.stride(1) == 1, "numbers of a row lie side by side"
    assert kv_2NSHD.is_contiguous(), "K/V must be contiguous"
    assert exponents_2NSH is None or mixed_TF.dtype != torch.float64, "codes are made of 32 bits at most"
    (count, lines), (kv_heads, size) = mixed_TF.shape, kv_2NSHD.shape[3:]
    queries = lines // size - 2 * kv_heads
    q_THD = torch.empty((count, queries, size), dtype=mixed_TF.dtype, device=mixed_TF.device)
    wide = tl.float64 if mixed_TF.dtype == torch.float64 else tl.float32
    kinds = [triton.cdiv(heads, GROUP) for heads in (queries, kv_heads, kv_heads)]
    _store_qkv_kernel[(count, sum(kinds))](
        mixed_TF, mixed.squares_T, bias_F, weight_HD, rotation.cos_T1D, rotation.sin_T1D, q_THD, kv_2NSHD,
        kv_2NSHD if exponents_2NSH is None else exponents_2NSH, slots_T,
        mixed_TF.stride(0), kv_2NSHD.shape[1] * kv_2NSHD.shape[2], 1.0 / max(width, 1), eps,
        QUERIES=queries, KV_HEADS=kv_heads, SIZE=size, HALF_PAD=triton.next_power_of_2(size // 2), WIDE=wide,
        GROUP=GROUP, OFFSET=offset, V_NORM=v_norm, PDL=PDL, **LAUNCH,
    )  # fmt: skip
    return q_THD


@triton.jit
def _store_qkv_kernel(
    mixed_ptr, squares_ptr, bias_ptr, weight_ptr, cos_ptr, sin_ptr, q_ptr, kv_ptr, exponents_ptr, slots_ptr, stride,
    places, inverse_width, eps,
    QUERIES: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, HALF_PAD: tl.constexpr, WIDE: tl.constexpr,
    GROUP: tl.constexpr, OFFSET: tl.constexpr, V_NORM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Groups of heads in the order queries, keys, values; none mixes two kinds. K/V of eight bits are codes."""
    allow_next(PDL)
    await_previous(PDL)
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    Q_GROUPS: tl.constexpr = (QUERIES + GROUP - 1) // GROUP
    KV_GROUPS: tl.constexpr = (KV_HEADS + GROUP - 1) // GROUP
    member = tl.arange(0, GROUP)
    mixed_ptr += row * stride
    cos_ptr += row * SIZE
    sin_ptr += row * SIZE
    slot = tl.load(slots_ptr + row).to(tl.int64)
    scale = tl.full((1, 1), 1.0, WIDE)
    if squares_ptr is not None:
        scale = row_scale(squares_ptr, row, inverse_width, eps)[None, :].to(WIDE)
    if group < Q_GROUPS:
        head = group * GROUP + member
        turn_heads(
            mixed_ptr, q_ptr + (row * QUERIES + head) * SIZE, head, head < QUERIES, bias_ptr, weight_ptr, cos_ptr,
            sin_ptr, scale, eps, SIZE, HALF_PAD, WIDE, OFFSET,
        )  # fmt: skip
    elif group < Q_GROUPS + KV_GROUPS:
        key_head = (group - Q_GROUPS) * GROUP + member
        place = slot * KV_HEADS + key_head
        if kv_ptr.dtype.element_ty == tl.int8:
            low, high, reads = turned_heads(
                mixed_ptr, QUERIES + key_head, key_head < KV_HEADS, bias_ptr, weight_ptr, cos_ptr, sin_ptr, scale, eps,
                SIZE, HALF_PAD, WIDE, OFFSET,
            )  # fmt: skip
            low, high = low.to(q_ptr.dtype.element_ty), high.to(q_ptr.dtype.element_ty)
            store_halves(kv_ptr, exponents_ptr, place, key_head < KV_HEADS, low, high, reads, SIZE)
        else:
            turn_heads(
                mixed_ptr, kv_ptr + place * SIZE, QUERIES + key_head, key_head < KV_HEADS, bias_ptr, weight_ptr,
                cos_ptr, sin_ptr, scale, eps, SIZE, HALF_PAD, WIDE, OFFSET,
            )  # fmt: skip
    else:
        value_head, column = (group - Q_GROUPS - KV_GROUPS) * GROUP + member, tl.arange(0, 2 * HALF_PAD)
        takes = (value_head < KV_HEADS)[:, None] & (column < SIZE)[None, :]
        at = (QUERIES + KV_HEADS + value_head[:, None]) * SIZE + column[None, :]
        value = load_heads(mixed_ptr, bias_ptr, at, takes, scale, WIDE)
        if V_NORM:
            value *= _root(value, eps, SIZE)
        place = (places + slot) * KV_HEADS + value_head
        if kv_ptr.dtype.element_ty == tl.int8:
            value = value.to(q_ptr.dtype.element_ty)
            store_heads(kv_ptr, exponents_ptr, place, value_head < KV_HEADS, value, takes, SIZE)
        else:
            target = kv_ptr + place[:, None] * SIZE + column[None, :]
            tl.store(target, value.to(kv_ptr.dtype.element_ty), mask=takes)


@triton.jit
def _root(value, eps, SIZE: tl.constexpr):
    """Return one over the root mean square of heads [M, 1], which lie in lines padded with zeros."""
    if value.dtype == tl.float64:
        return tl.rsqrt(tl.sum(value * value, 1) / SIZE + eps)[:, None]
    return root_scale(tl.sum(squares(value), 1), 1.0 / SIZE, eps)[:, None]
