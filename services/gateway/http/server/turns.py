"""Who may look next at what came: one connection in each turn of the event loop, so that streams go on meanwhile."""

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Calls what was asked for in order, one in each turn of the loop; between two of them all else has its own."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: deque[Callable[[], None]] = deque()

    def ask(self, work: Callable[[], None]) -> None:
        """Calls `work` when those that asked before have had their turns."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        work = self._waiting[0]
        try:
            work()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)
