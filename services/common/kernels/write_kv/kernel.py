"""Scatter of context K/V on the GPU, one program per row and layer half. Bytes for T rows: 2 T (2 L H D) e."""

import triton
import triton.language as tl
from torch import Tensor


def write_layers(kv_L2NSHD: Tensor, rows_TL2HD: Tensor, slots_T: Tensor) -> None:
    """Store each row's keys and values of all layers at once."""
    assert kv_L2NSHD.is_contiguous(), "K/V must be contiguous"
    assert rows_TL2HD.is_contiguous(), "rows must be contiguous"
    count, layers, _, heads, head_dim = rows_TL2HD.shape
    places, size = kv_L2NSHD.shape[2] * kv_L2NSHD.shape[3], heads * head_dim
    _write_layers_kernel[(count, layers * 2)](
        rows_TL2HD, kv_L2NSHD, slots_T, places, size, HALVES=layers * 2, SIZE_PAD=triton.next_power_of_2(size)
    )


@triton.jit
def _write_layers_kernel(
    rows_ptr, kv_ptr, slots_ptr, places, size, HALVES: tl.constexpr, SIZE_PAD: tl.constexpr
):  # fmt: skip
    row, half = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    slot = tl.load(slots_ptr + row)
    element = tl.arange(0, SIZE_PAD)
    inside = element < size
    value = tl.load(rows_ptr + (row * HALVES + half) * size + element, mask=inside)
    tl.store(kv_ptr + (half * places + slot) * size + element, value, mask=inside)
