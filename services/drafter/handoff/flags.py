"""Hand-off by flags: the CUDA streams of target and drafter write words of the arena and wait for them."""

import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from services.common.pair.arena.flags import FlagPair
from services.common.pair.flag_wait import FlagWait
from services.common.pair.mps import mps_serves
from services.drafter.handoff.protocol import Fill, SharedMemory
from services.drafter.handoff.socket import Turns

logger = logging.getLogger(__name__)
_RELEASE_S = 1.0
_STUCK = 70


class FlagHandoff(SharedMemory):
    """For an arena on a GPU. Messages order only the hosts: on a message the host enqueues the draft.

    They come over the connection, where there is one, and are not answered.
    """

    def __init__(self, flags: Tensor, generation: int, connection: socket.socket | None = None) -> None:
        """Owns the connection."""
        self._turns = None if connection is None else Turns(connection, answers=False)
        self._device = flags.device
        self._flags = FlagPair(flags, generation)
        self._stream = torch.cuda.current_stream(flags.device)
        self._gate = FlagWait(flags, "published", _RELEASE_S) if mps_serves() else None
        self._last = 0

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """Under MPS a captured draft of few sequences begins with the wait for the round's inputs."""
        if self._gate is not None and self._gate.serves(bucket):
            self._gate.hold(stamp_2)

    def begin(self, number: int, bucket: int, behind_prompts: bool) -> None:
        """Enqueues a wait for `published`, unless the draft of this size begins with that wait itself.

        Behind prompts the stream waits in any case: a kernel that polled would take a place from their products.
        """
        self._last = number
        if self._gate is None or behind_prompts or not self._gate.serves(bucket):
            self._flags.await_published(number)

    def end(self, number: int) -> None:
        """Enqueues the write of `drafted`, for which the target's stream waits."""
        self._flags.draft(number)

    def serve(self, fill: Fill, observe: Callable[[float], object], core: int) -> None:
        """Starts the thread that reads the connection."""
        if self._turns is not None:
            self._turns.serve(fill, observe, core, partial(torch.cuda.set_device, self._device))

    def close(self) -> None:
        """Ends the stream's wait for a target that is gone; ends the process if the stream stays stuck."""
        if self._turns is not None:
            self._flags.release_drafter(self._last)
            self._turns.close()
        self._flags.release_drafter(self._last)
        deadline = time.monotonic() + _RELEASE_S
        while not self._stream.query():
            if time.monotonic() > deadline:
                logger.critical("the stream hangs on a target that is gone")
                os._exit(_STUCK)
            time.sleep(0.001)
