"""Finds a target that is silent on an open connection: a dead link, a stopped process, a blocked loop."""

import asyncio
from collections.abc import Awaitable, Callable

from services.gateway.targets.probes import Health, Reach

TICK_S = 0.2
ASK_AFTER = 7
UNREACHED_AFTER = 12
SILENT_AFTER = 20
LONGEST = 60
"""Ticks: without a frame before the target is asked, without an answer of any kind, without a sign that its engine
moves, and without a frame whatever it says."""


class SilentError(Exception):
    """The target gave no frame and no other sign of life."""


class Heartbeat:
    """Counts ticks without a frame, without a sign of life, and without an answer of any kind.

    Targets send a frame at least every second. A silent target is asked whether it lives, and whether its process
    answers a new connection, which a starved one does too. A target that answers nothing is given up soonest; one that
    reports a stuck engine is given up without further grace. Ticks are counted instead of time, and each tick lets the
    reader run, so a gateway that was itself stopped does not take its own sleep for the target's silence.
    """

    def __init__(self, health: Health, reach: Reach) -> None:
        """The two questions."""
        self._health = health
        self._reach = reach
        self._mute = 0
        self._lifeless = 0
        self._unreached = 0

    def beat(self) -> None:
        """A frame came."""
        self._mute = self._lifeless = self._unreached = 0

    def answer(self, live: bool | None) -> None:
        """What the target said when asked; None when it said nothing."""
        if live is not None:
            self._unreached = 0
            self._lifeless = 0 if live else SILENT_AFTER

    def reached(self) -> None:
        """The target's process answered a new connection, which says nothing of its engine."""
        self._unreached = 0

    def tick(self) -> bool:
        """A fifth of a second passed; True when the target is silent."""
        self._mute += 1
        self._lifeless += 1
        self._unreached += 1
        silent = min(self._mute, self._lifeless) > SILENT_AFTER or self._mute > LONGEST
        return silent or self._unreached > UNREACHED_AFTER

    async def watch(self) -> None:
        """Ticks until the target is silent.

        Raises:
            SilentError: it is.
        """
        asked: dict[Callable[[], Awaitable[None]], asyncio.Future[None]] = {}
        try:
            while not self.tick():
                for question in self._questions():
                    if question not in asked or asked[question].done():
                        asked[question] = asyncio.ensure_future(question())
                await asyncio.sleep(TICK_S)
        finally:
            for task in asked.values():
                task.cancel()
        raise SilentError(f"the target sent nothing for {self._mute * TICK_S:.1f} s")

    def _questions(self) -> list[Callable[[], Awaitable[None]]]:
        """What to ask now; a connection is opened only where nothing else was answered."""
        questions: list[Callable[[], Awaitable[None]]] = []
        if self._mute >= ASK_AFTER:
            questions.append(self._ask_health)
        if self._unreached >= ASK_AFTER:
            questions.append(self._ask_reach)
        return questions

    async def _ask_health(self) -> None:
        self.answer(await self._health())

    async def _ask_reach(self) -> None:
        if await self._reach():
            self.reached()
