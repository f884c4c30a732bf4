"""Positions, slots and reach of a span in one launch on the GPU instead of a dozen operators on a few integers.

Bytes for B spans of W rows: B (8 + 20 W), a launch in all but name.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

_TILE, _MOVED = 256, 1024


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


def move_span(places_N: Tensor, block_table_BN: Tensor, slots_T: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Return the places of a table's blocks, int32, and the flat slots there of others, int64."""
    assert block_table_BN.is_contiguous(), "tables must be contiguous"
    assert slots_T.is_contiguous(), "slots must be contiguous"
    table_BN, moved_T = torch.empty_like(block_table_BN, dtype=torch.int32), torch.empty_like(slots_T)
    blocks, slots = block_table_BN.numel(), slots_T.numel()
    tiles = triton.cdiv(blocks, _MOVED)
    _move_kernel[(tiles + triton.cdiv(slots, _MOVED),)](
        places_N, block_table_BN, slots_T, table_BN, moved_T, tiles, blocks, slots, BLOCK_SIZE=block_size, TILE=_MOVED,
        PDL=PDL, num_warps=4, **LAUNCH,
    )  # fmt: skip
    return table_BN, moved_T


@triton.jit
def _move_kernel(
    places_ptr, table_ptr, slots_ptr, table_out_ptr, slots_out_ptr, tiles, blocks, slots,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Blocks of a table are taken by the first programs, slots by the others."""
    allow_next(PDL)
    await_previous(PDL)
    program, lane = tl.program_id(0), tl.arange(0, TILE)
    if program < tiles:
        at = program * TILE + lane
        block = tl.load(table_ptr + at, mask=at < blocks, other=0).to(tl.int64)
        tl.store(
            table_out_ptr + at, tl.load(places_ptr + block, mask=at < blocks, other=0).to(tl.int32), mask=at < blocks
        )
    else:
        at = (program - tiles) * TILE + lane
        slot = tl.load(slots_ptr + at, mask=at < slots, other=0).to(tl.int64)
        place = tl.load(places_ptr + slot // BLOCK_SIZE, mask=at < slots, other=0).to(tl.int64)
        tl.store(slots_out_ptr + at, place * BLOCK_SIZE + slot % BLOCK_SIZE, mask=at < slots)


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
