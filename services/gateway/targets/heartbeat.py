"""Finds a target that is silent on an open connection: a dead link, a stopped process, a blocked loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from services.gateway.targets.probes import Health, Reach

TICK_S = 0.2
ASK_AFTER = 7
UNREACHED_AFTER = 12
SILENT_AFTER = 20
LONGEST = 60
"""Ticks: without a frame before the target is asked, without an answer of any kind, without a sign that its engine
moves, and without a frame whatever it says."""
QUIET = 40
"""Ticks for which a target is asked to be silent while nothing is expected of it; the others count from then on."""


class SilentError(Exception):
    """The target gave no frame and no other sign of life."""


class _Clock:
    """One timer for all sessions of a loop: a thousand timers would cost more than what they do."""

    def __init__(self) -> None:
        """Runs while somebody listens."""
        self._listeners: dict[object, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, name: object, listener: Callable[[], None]) -> None:
        """Calls a listener now, and then every tick."""
        self._listeners[name] = listener
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        listener()

    def remove(self, name: object) -> None:
        """Calls it no more."""
        del self._listeners[name]
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for listener in [*self._listeners.values()]:
                listener()


_CLOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clock] = WeakKeyDictionary()


@contextmanager
def ticking(listener: Callable[[], None]) -> Iterator[None]:
    """Calls a listener now and every TICK_S while the block runs; between two calls everything else gets its turn."""
    clock = _CLOCKS.setdefault(asyncio.get_running_loop(), _Clock())
    name = object()
    clock.add(name, listener)
    try:
        yield
    finally:
        clock.remove(name)


class Heartbeat:
    """Counts ticks without a frame, without a sign of life, and without an answer of any kind.

    Targets send a frame at least every second while something is expected of them, and otherwise when their load
    changes, or after QUIET. A silent target is asked whether it lives, and whether its process
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
        self._rest = 0

    def beat(self, quiet: bool = False) -> None:
        """A frame came; the next one may be late where nothing is expected."""
        self._mute = self._lifeless = self._unreached = 0
        self._rest = QUIET if quiet else 0

    def expect(self) -> None:
        """The target has something to answer: it may be quiet no longer."""
        self._rest = 0

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
        if self._rest:
            self._rest -= 1
            return False
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
        silent = asyncio.get_running_loop().create_future()
        asked: dict[Callable[[], Awaitable[None]], asyncio.Future[None]] = {}

        def tick() -> None:
            if self.tick():
                if not silent.done():
                    silent.set_result(None)
                return
            if self._mute < ASK_AFTER and self._unreached < ASK_AFTER:
                return
            for question in self._questions():
                if question not in asked or asked[question].done():
                    asked[question] = asyncio.ensure_future(question())

        try:
            with ticking(tick):
                await silent
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
