"""Where a step waits for its masks: the host makes them while the forward runs (ADR 0027)."""

import torch
from torch import Tensor

from services.common.kernels.accept import SlotState
from services.common.kernels.wait_masks import wait_masks

LIMIT_S = 0.02
"""The longest wait of a round, behind its forward. The rows of a host that is later commit nothing in that round."""


class MaskGate:
    """Static memory of the wait. `made_S` is the last round that a slot's masks were made for."""

    def __init__(self, slots: SlotState, most_rows: int) -> None:
        device, self._pad_slot = slots.masked_S.device, len(slots.masked_S) - 1
        self._masked_S = slots.masked_S
        self.made_S = torch.zeros(len(slots.masked_S), dtype=torch.int64, device=device)
        self._number_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self._ready_B = torch.zeros(most_rows, dtype=torch.int32, device=device)

    def expect(self, number: int) -> None:
        """The next step is this round's, and masks that were made before do not hold for it."""
        self._number_1.fill_(number)

    def hold(self, rows_B: Tensor) -> Tensor:
        """Enqueues the wait; returns the rows for accept, of which those whose masks came too late are pad rows."""
        ready_B = self._ready_B[: len(rows_B)]
        wait_masks(rows_B, self._masked_S, self.made_S, self._number_1, ready_B, self._pad_slot, LIMIT_S)
        return ready_B
