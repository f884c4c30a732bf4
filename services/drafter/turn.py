"""The drafter's side of a hand-off: when a draft may begin, and how its end is told."""

import logging
import os
import time
from typing import Protocol

import torch
from torch import Tensor

from services.common.pair.arena.flags import FlagPair
from services.common.pair.gate import Gate
from services.common.pair.mps import mps_serves

logger = logging.getLogger(__name__)
_RELEASE_S = 1.0
_STUCK = 70


class Turn(Protocol):
    """Stands around every draft; belongs to one attachment."""

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """At the head of a captured draft: what follows may read the inputs of the stamp's round and generation."""
        ...

    def begin(self, number: int, bucket: int) -> None:
        """The drafter may read the round's inputs after this, or in a draft that holds."""
        ...

    def end(self, number: int) -> None:
        """The mailbox is filled."""
        ...

    def close(self) -> None:
        """No draft comes any more; the arena may be unmapped after this."""
        ...


class HostTurn:
    """The message that asks says that the inputs are there; the answer says that the mailbox is filled."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """The inputs are there."""

    def begin(self, number: int, bucket: int) -> None:
        """The inputs are there."""

    def end(self, number: int) -> None:
        """Waits for the device."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def close(self) -> None:
        """Nothing waits."""


class FlagTurn:
    """The streams wait for one another; asking and answering only keep the two hosts in step."""

    def __init__(self, flags: Tensor, generation: int) -> None:
        self._flags = FlagPair(flags, generation)
        self._stream = torch.cuda.current_stream(flags.device)
        self._gate = Gate(flags, "published", _RELEASE_S) if mps_serves() else None
        self._last = 0

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """Where processes share the GPU a draft of few sequences itself waits for the round's inputs."""
        if self._gate is not None and self._gate.serves(bucket):
            self._gate.hold(stamp_2)

    def begin(self, number: int, bucket: int) -> None:
        """Lets the stream wait for them, unless the draft does."""
        self._last = number
        if self._gate is None or not self._gate.serves(bucket):
            self._flags.await_published(number)

    def end(self, number: int) -> None:
        """Lets the stream tell the target's."""
        self._flags.draft(number)

    def close(self) -> None:
        """Releases the stream from a target that is gone; a stream that stays stuck ends the process."""
        self._flags.release_drafter(self._last)
        deadline = time.monotonic() + _RELEASE_S
        while not self._stream.query():
            if time.monotonic() > deadline:
                logger.critical("the stream hangs on a target that is gone")
                os._exit(_STUCK)
            time.sleep(0.001)


def make_turn(handoff: str, flags: Tensor, generation: int) -> Turn:
    """The turn that an offer asks for."""
    return FlagTurn(flags, generation) if handoff == "flags" else HostTurn(flags.device)
