"""Notices the death of the target's process."""

import asyncio
import os
from collections.abc import Callable


class TargetWatch:
    """Calls back once, on the loop that made it, when a process ends."""

    def __init__(self, pid: int, on_death: Callable[[], None]) -> None:
        """Watches `pid` until `close`.

        Raises:
            OSError: the process is gone or cannot be watched from here.
        """
        self._loop = asyncio.get_running_loop()
        self._on_death = on_death
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._died)

    def close(self) -> None:
        """Stops watching; closing twice is harmless."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _died(self) -> None:
        self.close()
        self._on_death()
