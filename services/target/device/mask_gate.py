"""Where a step waits for the host: for its masks behind the forward (ADR 0027), for drafts in front of it (0058)."""

from collections.abc import Callable

import torch
from torch import Tensor

from services.common.kernels.accept import SlotState, peek
from services.common.kernels.nodes import Nodes
from services.common.kernels.wait_masks import wait_masks
from services.common.pair.arena.flags import setter

LIMIT_S = 0.02
"""The longest wait of a round, behind its forward. The rows of a host that is later commit nothing in that round."""


class MaskGate:
    """Static memory of the waits.

    `made_S` is the last round that a slot's masks were made for, `mended_S` the last whose drafts were mended.
    `told_SW`, memory of the host, holds what rows choose where no mask is, as `peek` says it.
    """

    def __init__(self, slots: SlotState, most_rows: int) -> None:
        device, self._pad_slot = slots.masked_S.device, len(slots.masked_S) - 1
        self._slots, self._masked_S = slots, slots.masked_S
        shape, on_gpu = slots.mask_SWN.shape[:2], device.type == "cuda"
        self.told_SW = torch.zeros(shape, dtype=torch.int64, pin_memory=on_gpu)
        self.meanwhile: Callable[[], None] | None = None
        """What a CPU does once when a step waits for masks: no other thread makes them."""
        self.made_S = torch.zeros(len(slots.masked_S), dtype=torch.int64, device=device)
        self.mended_S = torch.zeros_like(self.made_S)
        self._number_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self.expect = setter(self._number_1[0])
        """Says whose round the next step is: masks that were made before do not hold for it."""
        self._ready_B = torch.zeros(most_rows, dtype=torch.int32, device=device)

    def tell(self, logits_BWV: Tensor, rows_B: Tensor, noise_BWV: Tensor | None, nodes: Nodes | None) -> None:
        """Enqueues what tells the host the choices that rows would have without masks."""
        peek(logits_BWV, rows_B, self._slots, self._number_1, self.told_SW, noise_BWV, nodes)

    def hold(self, rows_B: Tensor) -> Tensor:
        """Enqueues the wait; returns the rows for accept, of which those whose masks came too late are pad rows."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._wait(rows_B, self.made_S)

    def hold_drafts(self, rows_B: Tensor) -> None:
        """Enqueues the wait for drafts to be mended; of a host that is late they are taken as they are."""
        self._wait(rows_B, self.mended_S)

    def _wait(self, rows_B: Tensor, done_S: Tensor) -> Tensor:
        ready_B = self._ready_B[: len(rows_B)]
        wait_masks(rows_B, self._masked_S, done_S, self._number_1, ready_B, self._pad_slot, LIMIT_S)
        return ready_B
