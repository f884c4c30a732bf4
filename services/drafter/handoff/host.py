"""Hand-off by the hosts: the request says that the inputs are written, the answer that the mailbox is filled."""

import torch
from torch import Tensor

from services.drafter.handoff.protocol import SharedMemory


class HostHandoff(SharedMemory):
    """The portable fallback, on any device. The request comes after the inputs, so no draft waits for them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """Does nothing: the inputs are written."""

    def begin(self, number: int, bucket: int, behind_prompts: bool) -> None:
        """Does nothing: the inputs are written."""

    def end(self, number: int) -> None:
        """Waits for the device."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
