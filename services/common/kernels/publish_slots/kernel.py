"""The copies in one launch on the GPU. Bytes for B rows and S slots: 8 B + 40 S."""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.publish_slots.reference import Mapped

_TILE = 256


def publish_slots(rows_B: Tensor, length_S: Tensor, anchor_S: Tensor, mapped: Mapped) -> None:
    """Copy a round's rows, and lengths and anchors of all slots."""
    rows, slots = len(rows_B), len(length_S)
    _publish_kernel[(triton.cdiv(max(rows, slots), _TILE),)](
        rows_B, length_S, anchor_S, mapped.rows_B, mapped.length_S, mapped.anchor_S, mapped.history_length_S, rows,
        slots, TILE=_TILE, PDL=PDL, **LAUNCH,
    )  # fmt: skip


@triton.jit
def _publish_kernel(
    rows_ptr, length_ptr, anchor_ptr, mapped_rows_ptr, mapped_length_ptr, mapped_anchor_ptr, mapped_end_ptr, rows,
    slots, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    row, slot = place < rows, place < slots
    tl.store(mapped_rows_ptr + place, tl.load(rows_ptr + place, mask=row), mask=row)
    length = tl.load(length_ptr + place, mask=slot)
    tl.store(mapped_length_ptr + place, length, mask=slot)
    tl.store(mapped_end_ptr + place, length + 1, mask=slot)
    tl.store(mapped_anchor_ptr + place, tl.load(anchor_ptr + place, mask=slot), mask=slot)
