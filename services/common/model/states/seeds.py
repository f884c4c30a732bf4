"""The states that a chain of drafts begins with: of each slot's last committed position, and of each block's last.

A chain's row at a position needs the state of the position before. Within a forward that is the row before; for the
first row it is the slot's seed. A request that goes on behind cached blocks begins with the last one's seed.
"""

import torch
from torch import Tensor

from services.common.kernels.span_attention.host_span import PAD_BLOCK
from services.common.model.states.states import Part, Rows


class Seeds:
    """`slot_SD` of every slot, the pad slot's last, `block_ND` of every block of K/V, and a copy for the drafter."""

    def __init__(self, blocks: int, block_size: int, mapped_SD: Tensor) -> None:
        """`mapped_SD` is the drafter's copy; `blocks` and its slots include those for padding."""
        self.slot_SD = torch.zeros_like(mapped_SD)
        self.block_ND = mapped_SD.new_zeros((blocks, mapped_SD.shape[1]))
        self._mapped_SD, self._block_size = mapped_SD, block_size

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor that a step reads or writes."""
        return [self.slot_SD, self.block_ND, self._mapped_SD]

    def begin(self, slot: int, block: int | None) -> None:
        """A slot gets another request, which goes on behind a block, or begins at position 0."""
        if block is None:
            self.slot_SD[slot].zero_()
        else:
            self.slot_SD[slot].copy_(self.block_ND[block])

    def before(self, states_TD: Tensor, rows: Rows) -> Tensor:
        """Return the states [T, D] of the positions before rows, and keep those of blocks that rows end.

        A draft that is rejected later may end a block: its state is written again together with its row.
        """
        self._end_blocks(states_TD, rows)
        parts = zip(rows.parts, rows.split(states_TD), strict=True)
        return torch.cat([self._before(part, states_BWD).flatten(0, 1) for part, (_, states_BWD) in parts])

    def commit(self, states_TD: Tensor, rows_B: Tensor, counts_B: Tensor) -> None:
        """Slots [B] have grown by counts [B] tokens: the state of the last one is their seed."""
        slots_B, states_BWD = rows_B.long(), states_TD.view(len(rows_B), -1, states_TD.shape[-1])
        last_BD = _last(states_BWD, counts_B)
        kept_BD = self.slot_SD.index_select(0, slots_B)
        self.slot_SD.index_copy_(0, slots_B, torch.where((counts_B > 0)[:, None], last_BD, kept_BD))

    def fill(self, states_TD: Tensor, rows: Rows) -> None:
        """Rows of prompts, and plain rows beside them, will be committed: the last state of each slot is its seed."""
        for part, (_, states_BWD) in zip(rows.parts, rows.split(states_TD), strict=True):
            slots_B, last_BD = part.rows_B.long(), states_BWD[:, -1]
            if part.valid_B is not None:
                last_BD = _last(states_BWD, part.valid_B)
                # A segment that another one goes on behind, and padding, leave no seed.
                left_B = _follows(part, part.valid_B).any(0) | (part.valid_B == 0)
                slots_B = slots_B.masked_fill(left_B, len(self.slot_SD) - 1)
            self.slot_SD.index_copy_(0, slots_B, last_BD)

    def publish(self) -> None:
        """Copy the slots' seeds for the drafter."""
        self._mapped_SD.copy_(self.slot_SD)

    def _before(self, part: Part, states_BWD: Tensor) -> Tensor:
        first_BD = self.slot_SD.index_select(0, part.rows_B.long())
        if part.valid_B is not None and len(part.rows_B) > 1:
            follows_BB = _follows(part, part.valid_B)
            other_B = follows_BB.long().argmax(1)
            last_BD = _last(states_BWD, part.valid_B).index_select(0, other_B)
            first_BD = torch.where(follows_BB.any(1)[:, None], last_BD, first_BD)
        return torch.cat((first_BD[:, None], states_BWD[:, :-1]), 1)

    def _end_blocks(self, states_TD: Tensor, rows: Rows) -> None:
        last_T = rows.slots_T % self._block_size == self._block_size - 1
        blocks_T = torch.where(last_T, rows.slots_T // self._block_size, PAD_BLOCK)
        self.block_ND.index_copy_(0, blocks_T, states_TD)


def _last(states_BWD: Tensor, counts_B: Tensor) -> Tensor:
    """Return the last of each sequence's first rows [B, D]; of one without rows its first."""
    rows_B = torch.arange(len(states_BWD), device=states_BWD.device)
    return states_BWD[rows_B, (counts_B - 1).clamp_min(0)]


def _follows(part: Part, valid_B: Tensor) -> Tensor:
    """Return [B, B] which sequence begins where another one of its slot ends in the same forward."""
    slots_B, starts_B = part.rows_B, part.span.lengths_B
    ends_B = starts_B + valid_B
    return (slots_B[:, None] == slots_B) & (starts_B[:, None] == ends_B) & (valid_B > 0)
