"""Positions, slots and reach of a span in one launch on the GPU instead of a dozen operators on a few integers.

Bytes for B spans of W rows: B (8 + 20 W), a launch in all but name. So are those of where blocks of windows lie.
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


def place_near(slots_T: Tensor, block_table_BN: Tensor, places_N: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Return flat slots and a block table whose blocks lie where `places_N` says."""
    assert block_table_BN.is_contiguous(), "rows lie one behind the other"
    near_T, near_BN = torch.empty_like(slots_T), torch.empty_like(block_table_BN)
    columns = block_table_BN.numel()
    _near_kernel[(triton.cdiv(columns, _TILE) + triton.cdiv(len(slots_T), _TILE),)](
        slots_T, block_table_BN, places_N, near_T, near_BN, len(slots_T), columns, BLOCK_SIZE=block_size, TILE=_TILE,
        num_warps=1,
    )  # fmt: skip
    return near_T, near_BN


@triton.jit
def _near_kernel(
    slots_ptr, table_ptr, places_ptr, near_slots_ptr, near_table_ptr, rows, columns,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The first programs have the table, the others the slots."""
    tile, tables = tl.program_id(0), tl.cdiv(columns, TILE)
    if tile < tables:
        at = tile * TILE + tl.arange(0, TILE)
        inside = at < columns
        block = tl.load(table_ptr + at, mask=inside, other=0)
        tl.store(near_table_ptr + at, tl.load(places_ptr + block, mask=inside, other=0), mask=inside)
    else:
        at = (tile - tables) * TILE + tl.arange(0, TILE)
        inside = at < rows
        slot = tl.load(slots_ptr + at, mask=inside, other=0)
        place = tl.load(places_ptr + slot // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
        tl.store(near_slots_ptr + at, place * BLOCK_SIZE + slot % BLOCK_SIZE, mask=inside)
