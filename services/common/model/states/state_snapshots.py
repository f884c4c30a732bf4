"""Snapshots of recurrent states: what a sequence needs to go on at the end of a whole block, later, in any slot."""

from math import prod

from torch import Tensor

from services.common.model.spec import Delta


class StateSnapshots:
    """Places for copies of one slot's states in all layers, and of the rows before them that the convolution reads.

    Copies go by the order of the stream, outside of captured steps, and nothing waits for them.
    """

    def __init__(self, states_LSHKV: Tensor, rings_LSRC: Tensor, taps: int, places: int) -> None:
        """Copies to and from these states and rings of all slots."""
        self._states_LSHKV, self._rings_LSRC, self._taps = states_LSHKV, rings_LSRC, taps
        layers, channels = len(rings_LSRC), rings_LSRC.shape[-1]
        self._states_NLHKV = states_LSHKV.new_zeros(places, layers, *states_LSHKV.shape[2:])
        self._rows_NTLC = rings_LSRC.new_zeros(places, taps - 1, layers, channels)

    @staticmethod
    def sizes(layers: int, delta: Delta, itemsize: int) -> int:
        """Return the bytes of a snapshot."""
        state = prod((delta.v_heads, delta.k_dim, delta.v_dim)) * max(4, itemsize)
        return layers * (state + (delta.taps - 1) * delta.kept * itemsize)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that hold snapshots: of states, and of the rows before them."""
        return [self._states_NLHKV, self._rows_NTLC]

    def save(self, slot: int, place: int, folded: int) -> None:
        """Copy the states of a slot, which hold so many positions."""
        self._states_NLHKV[place].copy_(self._states_LSHKV[:, slot])
        for row_LC, kept_LC in zip(self._rows(slot, folded), self._rows_NTLC[place], strict=True):
            kept_LC.copy_(row_LC)

    def restore(self, slot: int, place: int, folded: int) -> None:
        """Copy a snapshot, which holds so many positions, into a slot."""
        self._states_LSHKV[:, slot].copy_(self._states_NLHKV[place])
        for row_LC, kept_LC in zip(self._rows(slot, folded), self._rows_NTLC[place], strict=True):
            row_LC.copy_(kept_LC)

    def _rows(self, slot: int, folded: int) -> list[Tensor]:
        """The rows [L, C] of a slot's ring at the last positions before `folded`, first ones first."""
        ring = self._rings_LSRC.shape[2]
        return [self._rings_LSRC[:, slot, at % ring] for at in range(folded - self._taps + 1, folded)]
