"""States and rings of recurrent layers, by slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.gated_delta import DeltaSpan, next_folded, plan_blocks, ring_rows
from services.common.model.spec import Delta, StackSpec
from services.common.model.states.state_snapshots import StateSnapshots
from services.common.model.weights.delta_weights import state_type

if TYPE_CHECKING:
    from services.common.model.states.states import Part, Rows, SpanPlan


class RecurrentStates:
    """One state and one ring of rows for each slot and recurrent layer, and one number for each slot.

    `folded_S` are the positions that a slot's states hold, always whole blocks; a ring holds the rows since, and before
    them those that the convolution needs, at their position modulo R.
    """

    def __init__(
        self, spec: StackSpec, delta: Delta, dtype: torch.dtype, device: torch.device, slots: int, width: int,
        snapshots: int,
    ) -> None:  # fmt: skip
        layers, self._taps, self._ring = spec.count(Delta), delta.taps, ring_rows(width, delta.taps)
        state, ring = (layers, slots, *_state_shape(delta)), (layers, slots, self._ring, delta.kept)
        self._states_LSHKV = torch.zeros(state, dtype=state_type(dtype), device=device)
        self._rings_LSRC = torch.zeros(ring, dtype=dtype, device=device)
        self._folded_S = torch.zeros(slots, dtype=torch.int64, device=device)
        self.snapshots = StateSnapshots(self._states_LSHKV, self._rings_LSRC, delta.taps, snapshots)
        self.layers = [list(pair) for pair in zip(self._states_LSHKV.unbind(), self._rings_LSRC.unbind(), strict=True)]

    @staticmethod
    def slot_bytes(spec: StackSpec, delta: Delta, itemsize: int, width: int) -> int:
        """Return the bytes of a slot in all layers."""
        state = prod(_state_shape(delta)) * max(4, itemsize)
        return spec.count(Delta) * (state + ring_rows(width, delta.taps) * delta.kept * itemsize) + 8

    @property
    def tensors(self) -> list[Tensor]:
        """Those that steps read and write, hence no snapshots."""
        return [self._states_LSHKV, self._rings_LSRC, self._folded_S]

    def reset(self, slot: int) -> None:
        """Nothing is folded: state and ring are not read until they have been written."""
        self._folded_S[slot].zero_()

    def save(self, slot: int, place: int, folded: int) -> None:
        """As `SequenceStates.save`."""
        self.snapshots.save(slot, place, folded)

    def resume(self, slot: int, place: int, folded: int) -> None:
        """What is not copied is not read, as after `reset`."""
        self.snapshots.restore(slot, place, folded)
        self._folded_S[slot].fill_(folded)

    def plans(self, rows: Rows) -> Sequence[SpanPlan]:
        """One plan for each span; kernels read theirs on the device."""
        make = DeltaSpan if on_kernel(self._folded_S) else plan_blocks
        return [self._plan(part, make) for part in rows.parts]

    def _plan(self, part: Part, make: Callable[..., SpanPlan]) -> SpanPlan:
        slots_B = part.rows_B.long()
        folded_B = self._folded_S.index_select(0, slots_B)
        return make(slots_B, part.span.lengths_B, folded_B, part.valid_B, part.span.width, self._ring, self._taps)

    def fold(self, plans: Sequence[SpanPlan]) -> None:
        """Only after all layers: each reads what the slot had folded before."""
        for plan in plans:
            folded_B = next_folded(plan) if isinstance(plan, DeltaSpan) else plan.folded_B
            self._folded_S.index_copy_(0, plan.slots_B, folded_B)


def _state_shape(delta: Delta) -> tuple[int, ...]:
    return delta.v_heads, delta.k_dim, delta.v_dim
