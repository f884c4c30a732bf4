"""Random recurrent states for the sequences of the check: all begin with the same ones, in any slot and again."""

import torch
from torch import Tensor

from services.common.model.states.states import SequenceStates
from services.target.device.exact.prints import AT_ONCE, Prints


class RecurrentScratch:
    """States and rings of the check's slots; the host follows how far each slot's states have folded."""

    def __init__(self, states: SequenceStates) -> None:
        self._grid = states.grid
        self._states_LSHKV, self._rings_LSRC, self._folded_S = states.recurrent if self._grid else [torch.empty(0)] * 3
        self._folded: dict[int, tuple[int, int]] = {}
        """By slot what it began with, and what it has folded now."""

    def __bool__(self) -> bool:
        """Whether the model has recurrent layers."""
        return self._grid > 0

    @property
    def small(self) -> list[Tensor]:
        """What is put back behind the check."""
        return [self._folded_S] if self else []

    def draw(self, generator: torch.Generator) -> None:
        """Make what every sequence begins with."""
        if self:
            self._state_LHKV = torch.empty_like(self._states_LSHKV[:, 0]).normal_(generator=generator)
            self._ring_LRC = torch.empty_like(self._rings_LSRC[:, 0]).normal_(generator=generator)

    def forget(self) -> None:
        """Leave nothing of the check."""
        if self:
            self._states_LSHKV.zero_()
            self._rings_LSRC.zero_()

    def seat(self, slot: int, length: int) -> None:
        """Begin a sequence of this length in a slot."""
        if self:
            self._rings_LSRC[:, slot].copy_(self._ring_LRC)
            self._rewind(slot, length // self._grid * self._grid)

    def reach(self, slot: int, length: int) -> None:
        """Before a round at this length: go back where the slot's states hold more, and note what it will fold."""
        if not self:
            return
        begun, folded = self._folded[slot]
        if folded > length:
            self._rewind(slot, begun)
            folded = begun
        self._folded[slot] = begun, max(folded, length // self._grid * self._grid)

    def written(self, prints: Prints, slots_T: Tensor, positions_T: Tensor) -> Tensor:
        """Return the prints [T] of what rings hold of positions, in every layer."""
        if not self:
            return torch.zeros_like(positions_T)
        layers, _, ring, channels = self._rings_LSRC.shape
        rows = [
            self._rings_LSRC[:, some_T, at_T % ring].transpose(0, 1).flatten(1)
            for some_T, at_T in zip(
                *(x_T.split(max(1, AT_ONCE // (layers * channels))) for x_T in (slots_T, positions_T)), strict=True
            )
        ]
        return torch.cat([prints.of(some) for some in rows])

    def _rewind(self, slot: int, folded: int) -> None:
        self._states_LSHKV[:, slot].copy_(self._state_LHKV)
        self._folded_S[slot].fill_(folded)
        self._folded[slot] = folded, folded
