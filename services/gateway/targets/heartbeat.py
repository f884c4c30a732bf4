"""Finds a target that went silent although its connection stands, as a stopped process or a blocked loop does."""

import asyncio

TICK_S = 0.5
TICKS = 8


class SilentError(Exception):
    """No frame came for TICKS ticks in a row."""


class Heartbeat:
    """Counts ticks without a frame.

    Targets send a frame at least every second. Ticks are counted instead of time measured, so that a gateway which was
    itself stopped or starved does not take its own sleep for the target's silence: each tick gives the reader a turn.
    """

    def __init__(self, ticks: int = TICKS) -> None:
        """Silence lasts `ticks` ticks."""
        self._limit = ticks
        self._quiet = 0

    def beat(self) -> None:
        """A frame came."""
        self._quiet = 0

    def tick(self) -> bool:
        """Half a second passed; True when the target is silent."""
        self._quiet += 1
        return self._quiet > self._limit

    async def watch(self) -> None:
        """Ticks until the target is silent.

        Raises:
            SilentError: it is.
        """
        while not self.tick():
            await asyncio.sleep(TICK_S)
        raise SilentError(f"the target sent nothing for {self._limit * TICK_S:g} s")
