"""Positions, slots and reach of a span in one launch on the GPU instead of a dozen operators on a few integers.

Bytes for B spans of W rows: B (8 + 20 W), a launch in all but name.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 256


def place_span(
    block_table_BN: Tensor, lengths_B: Tensor, width: int, block_size: int, valid_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return positions [B, W], flat slots to write to [B * W], and reach [B], as int64."""
    batch, columns = block_table_BN.shape
    positions_BW = torch.empty((batch, width), dtype=torch.int64, device=lengths_B.device)
    slots_T, reach_B = torch.empty_like(positions_BW.view(-1)), torch.empty_like(positions_BW[:, 0])
    _place_kernel[(batch, triton.cdiv(width, _TILE))](
        block_table_BN, lengths_B, lengths_B if valid_B is None else valid_B, positions_BW, slots_T, reach_B,
        block_table_BN.stride(0), columns, width, HAS_VALID=valid_B is not None, BLOCK_SIZE=block_size,
        TILE=min(_TILE, triton.next_power_of_2(width)), num_warps=1,
    )  # fmt: skip
    return positions_BW, slots_T, reach_B


@triton.jit
def _place_kernel(
    table_ptr, lengths_ptr, valid_ptr, positions_ptr, slots_ptr, reach_ptr, stride_table, columns, width,
    HAS_VALID: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offset = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = offset < width
    length = tl.load(lengths_ptr + row).to(tl.int64)
    position = length + offset
    index = position // BLOCK_SIZE
    owned = inside & (index < columns)
    reach = length + width
    if HAS_VALID:
        valid = tl.load(valid_ptr + row).to(tl.int64)
        owned = owned & (offset < valid)
        reach = length + tl.maximum(valid, 1)
    block = tl.load(table_ptr + row * stride_table + index, mask=owned, other=0).to(tl.int64)
    tl.store(positions_ptr + row * width + offset, position, mask=inside)
    tl.store(slots_ptr + row * width + offset, block * BLOCK_SIZE + position % BLOCK_SIZE, mask=inside)
    if tl.program_id(1) == 0:
        tl.store(reach_ptr + row, reach)
