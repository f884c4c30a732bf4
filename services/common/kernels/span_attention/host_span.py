"""Where rows of a span write and read on a CPU, and what hides places from them."""

import torch
from torch import Tensor

from services.common.kernels.torchscript import compiled

PAD_BLOCK = 0


def _written(
    block_table_BN: Tensor, lengths_B: Tensor, width: int, block_size: int, valid_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return positions, slots to write to, and reach."""
    fresh_W = torch.arange(width, device=lengths_B.device)
    positions_BW = lengths_B[:, None] + fresh_W
    slots_BW = _flat_slots(block_table_BN, positions_BW, block_size)
    if valid_B is None:
        return positions_BW, slots_BW.flatten(), lengths_B + width
    slots_BW = torch.where(fresh_W < valid_B[:, None], slots_BW, slots_BW % block_size)
    return positions_BW, slots_BW.flatten(), lengths_B + valid_B.clamp(min=1)


def _causal(
    block_table_BN: Tensor, positions_BW: Tensor, reach_B: Tensor, block_size: int
) -> tuple[Tensor, Tensor | None]:
    """Return where to read, and the mask that lets a row see its own position and those before."""
    gather_BT = _gather(block_table_BN, reach_B, block_size)
    if positions_BW.numel() == 1:
        return gather_BT, None
    return gather_BT, _bias(gather_BT.shape[1], positions_BW[:, None, :, None])


def _grown(
    block_table_BN: Tensor, lengths_B: Tensor, reach_B: Tensor, block_size: int, ancestors_BW: Tensor
) -> tuple[Tensor, Tensor]:
    """Return where to read, and the mask that lets a row of a tree see its context, its ancestors and itself.

    The first row is an ancestor of all, and stands for the context.
    """
    gather_BT = _gather(block_table_BN, reach_B, block_size)
    row_BT = (torch.arange(gather_BT.shape[1]) - lengths_B[:, None]).clamp(0, 63)
    hidden_BWT = (ancestors_BW[:, :, None] >> row_BT[:, None]) & 1 == 0
    return gather_BT, torch.zeros(hidden_BWT.shape).masked_fill_(hidden_BWT, float("-inf"))[:, None]


def _context(block_table_BN: Tensor, lengths_B: Tensor, width: int, block_size: int) -> tuple[Tensor, Tensor | None]:
    """Return where to read, and the mask over context and block that ends each row's context at its length."""
    gather_BT = _gather(block_table_BN, lengths_B, block_size)
    if lengths_B.numel() == 1:
        return gather_BT, None
    context_B11T = _bias(gather_BT.shape[1], lengths_B[:, None, None, None] - 1)
    return gather_BT, torch.nn.functional.pad(context_B11T, [0, width]).expand(-1, -1, width, -1)


def _flat_slots(block_table_BN: Tensor, positions_BT: Tensor, block_size: int, pad_block: int = PAD_BLOCK) -> Tensor:
    index_BT = positions_BT // block_size
    last = block_table_BN.shape[1] - 1
    block_BT = block_table_BN.gather(1, index_BT.clamp(max=last)).long()
    block_BT = torch.where(index_BT > last, pad_block, block_BT)
    return block_BT * block_size + positions_BT % block_size


def _gather(block_table_BN: Tensor, reach_B: Tensor, block_size: int) -> Tensor:
    """Index positions 0 .. max(reach) - 1 as read indices; a place that a row may not see reads position 0 instead.

    Those places are past a row's own reach or have no block. So a real row never reads stale K/V or the pad block: a
    masked NaN would still spoil a sum.
    """
    limit = block_table_BN.shape[1] * block_size
    reach_B = reach_B.clamp(1, limit)
    positions_T = torch.arange(int(reach_B.max()))
    positions_BT = positions_T[None]
    if len(reach_B) > 1:
        positions_BT = torch.where(positions_T < reach_B[:, None], positions_T, 0)
    slots_BT = _flat_slots(block_table_BN, positions_BT, block_size)
    return torch.where(slots_BT < block_size, slots_BT[:, :1], slots_BT)


def _windowed(
    block_table_BN: Tensor, lengths_B: Tensor, reach_B: Tensor, block_size: int, window: int
) -> tuple[Tensor, Tensor]:
    """Return the places [B, T] from the first that a row sees to the last, and where to read them.

    A place that no row sees reads the first one instead, as in `_gather`.
    """
    first_B1 = (lengths_B - window + 1).clamp(min=0)[:, None]
    reach_B1 = reach_B.clamp(1, block_table_BN.shape[1] * block_size)[:, None]
    places_BT = first_B1 + torch.arange(int((reach_B1 - first_B1).max().clamp(min=1)))
    slots_BT = _flat_slots(block_table_BN, torch.where(places_BT < reach_B1, places_BT, first_B1), block_size)
    return places_BT, torch.where(slots_BT < block_size, slots_BT[:, :1], slots_BT)


def _bias(count: int, last_B1W1: Tensor) -> Tensor:
    hidden_B1WT = torch.arange(count) > last_B1W1
    return torch.zeros(hidden_B1WT.shape).masked_fill_(hidden_B1WT, float("-inf"))


# These are some twenty operators on a few integers: without TorchScript most of their time would be Python's.
written_on_cpu = compiled(_written)
causal_on_cpu = compiled(_causal)
grown_on_cpu = compiled(_grown)
context_on_cpu = compiled(_context)
windowed_on_cpu = compiled(_windowed)
