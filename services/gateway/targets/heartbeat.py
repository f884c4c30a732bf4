"""Finds a target that went silent although its connection stands, as a stopped process or a blocked loop does."""

import asyncio
from collections.abc import Awaitable, Callable

TICK_S = 0.5
ASK_AFTER = 3
SILENT_AFTER = 8
LONGEST = 24
"""Ticks: without a frame before the target is asked, without any sign of life, and without a frame whatever it says."""

Probe = Callable[[], Awaitable[bool | None]]


class SilentError(Exception):
    """The target gave no frame and no other sign of life."""


class Heartbeat:
    """Counts ticks without a frame and without a sign of life.

    Targets send a frame at least every second. One that is only starved may not: it is asked whether it lives, and is
    given up when it neither sends nor says so. One that says that its engine is stuck has no further grace. Ticks are
    counted instead of time measured, so that a gateway which was itself stopped or starved does not take its own sleep
    for the target's silence: each tick gives the reader a turn.
    """

    def __init__(self, probe: Probe) -> None:
        """`probe` asks the target whether it lives; None when it gave no answer."""
        self._probe = probe
        self._mute = 0
        self._lifeless = 0

    def beat(self) -> None:
        """A frame came."""
        self._mute = self._lifeless = 0

    def answer(self, live: bool | None) -> None:
        """What the target said when asked; None when it said nothing."""
        if live is not None:
            self._lifeless = 0 if live else SILENT_AFTER

    def tick(self) -> bool:
        """Half a second passed; True when the target is silent."""
        self._mute += 1
        self._lifeless += 1
        return min(self._mute, self._lifeless) > SILENT_AFTER or self._mute > LONGEST

    async def watch(self) -> None:
        """Ticks until the target is silent.

        Raises:
            SilentError: it is.
        """
        asking: asyncio.Task[None] | None = None
        try:
            while not self.tick():
                if self._mute >= ASK_AFTER and (asking is None or asking.done()):
                    asking = asyncio.create_task(self._ask())
                await asyncio.sleep(TICK_S)
        finally:
            if asking is not None:
                asking.cancel()
        raise SilentError(f"the target sent nothing for {self._mute * TICK_S:g} s")

    async def _ask(self) -> None:
        self.answer(await self._probe())
