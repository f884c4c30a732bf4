"""Ends unfinished messages when the process grows too much, because gRPC checks a message's size only at its end."""

from __future__ import annotations

import asyncio
import ctypes
import os
from contextlib import suppress
from pathlib import Path

MOST_GROWTH_BYTES = 384 << 20
"""By how much the process may grow while a message is under way; 32 messages of 4 MiB are a third of it."""

LOOK_EVERY_S = 0.02
TRIM_AFTER_S = 0.5
"""Time in which gRPC frees the memory of ended messages."""

STATM = Path("/proc/self/statm")


class GrowthGuard:
    """Knows the messages under way, and looks at the memory of the process while there are any."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._first_seen: dict[asyncio.Timeout, int] = {}
        self._ended: set[asyncio.Timeout] = set()
        self._looking = False

    def begin(self, limit: asyncio.Timeout) -> None:
        """A message is under way, which the guard ends by this timeout."""
        self._first_seen[limit] = 0
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)

    def end(self, limit: asyncio.Timeout) -> None:
        """It is under way no more."""
        del self._first_seen[limit]

    def ended(self, limit: asyncio.Timeout) -> bool:
        """Whether the guard ended it."""
        return limit in self._ended

    def forget(self, limit: asyncio.Timeout) -> None:
        """Forgets a message that has ended."""
        self._ended.discard(limit)

    def _look(self) -> None:
        self._looking = bool(self._first_seen)
        if not self._looking:
            return
        loop, held = asyncio.get_running_loop(), resident_bytes()
        before = len(self._ended)
        for limit, first in self._first_seen.items():
            if not first:
                self._first_seen[limit] = held
            elif held - first > MOST_GROWTH_BYTES and limit not in self._ended:
                self._ended.add(limit)
                limit.reschedule(loop.time())
        if len(self._ended) > before:
            loop.call_later(TRIM_AFTER_S, give_back)
        loop.call_later(LOOK_EVERY_S, self._look)


def give_back() -> None:
    """Has the C library return what is free to the system: else the next attack would come on top of this one."""
    with suppress(AttributeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Memory that this process holds."""
    return int(STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGESIZE")
