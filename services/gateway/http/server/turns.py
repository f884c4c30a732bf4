"""Who may look next at what came: one connection in each turn of the event loop, so that streams go on meanwhile."""

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Calls what was asked for in order, one in each turn of the loop; between two of them all else has its own."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._had = False

    def take(self) -> bool:
        """Whether the caller has this turn: nobody waits for it, and nobody has had it."""
        if self._had:
            return False
        self._begin()
        return True

    def ask(self, work: Callable[[], None]) -> None:
        """Calls `work` when those that asked before have had their turns."""
        self._waiting.append(work)
        if not self._had:
            self._begin()

    def _begin(self) -> None:
        self._had = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._had = False
        if self._waiting:
            self._begin()
            self._waiting.popleft()()
