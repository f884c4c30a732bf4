"""How long a busy machine has held processes up: what a pause may be longer by."""

import asyncio
import bisect
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

LOOK_S = 0.05


class Held:
    """Adds up how long threads of processes were ready and had no processor, and how late the present loop ran.

    On a quiet machine both are next to nothing. A thread that waits itself, for a lock or in a sleep, is not held up.
    """

    def __init__(self, *pids: int) -> None:
        """Nothing is known before `looking`."""
        self._pids = pids
        self._threads: dict[str, int] = {}
        self._late_s = 0.0
        self._times: list[float] = []
        self._totals: list[float] = []

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Looks while the block runs."""
        self._look()
        task = asyncio.create_task(self._go_on())
        try:
            yield
        finally:
            task.cancel()

    def between(self, begin: float, end: float) -> float:
        """Seconds between two times of the monotonic clock, with what an eye that opens now and then adds."""
        self._look()
        first = max(bisect.bisect_right(self._times, begin) - 1, 0)
        last = min(bisect.bisect_left(self._times, end), len(self._times) - 1)
        return self._totals[last] - self._totals[first]

    async def _go_on(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(LOOK_S)
            self._late_s += max(0.0, time.monotonic() - began - LOOK_S)
            self._look()

    def _look(self) -> None:
        for pid in self._pids:
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                self._threads[path.parent.name] = _waited_ns(path, self._threads.get(path.parent.name, 0))
        self._times.append(time.monotonic())
        self._totals.append(self._late_s + sum(self._threads.values()) / 1e9)


def _waited_ns(path: Path, before: int) -> int:
    """For how long a thread was ready and did not run; one that has ended meanwhile waits no more."""
    try:
        return int(path.read_text().split()[1])
    except (OSError, IndexError):
        return before
