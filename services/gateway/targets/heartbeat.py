"""Finds a target that is silent on an open connection: a dead link, a stopped process, a blocked loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from services.gateway.targets.probes import Health, Reach
from services.gateway.targets.silence import ASK_AFTER, Silence

TICK_S = 0.2


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


class Heartbeat(Silence):
    """Asks a silent target whether it lives, and whether its process answers a new connection.

    A starved process does that, too. A target that answers nothing is given up soonest; one that reports a stuck engine
    is given up without further grace.
    """

    def __init__(self, health: Health, reach: Reach) -> None:
        """The two questions."""
        super().__init__()
        self._health, self._reach = health, reach

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
