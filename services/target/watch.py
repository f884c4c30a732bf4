"""Health that means something: steps advance while work is pending, turns advance always."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Pulse(Protocol):
    """What a watcher reads of an engine."""

    steps: int
    turns: int

    @property
    def pending(self) -> bool:
        """Whether requests are live."""
        ...


class EngineWatch:
    """Tells a stalled engine from an idle one. Poll it from a thread that the engine cannot block."""

    def __init__(self, pulse: Pulse, stall_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A healthy engine turns, and steps while it has work, within ``stall_s`` seconds."""
        self._pulse = pulse
        self._stall_s = stall_s
        self._clock = clock
        self._seen = (-1, -1)
        self._stepped = self._turned = clock()

    def healthy(self) -> bool:
        """Whether the engine moves."""
        now = self._clock()
        steps, turns = self._pulse.steps, self._pulse.turns
        if steps != self._seen[0] or not self._pulse.pending:
            self._stepped = now
        if turns != self._seen[1]:
            self._turned = now
        self._seen = (steps, turns)
        return now - self._stepped < self._stall_s and now - self._turned < self._stall_s


async def keep_health(
    watch: EngineWatch, ready: Callable[[], bool], set_serving: Callable[[bool], None], every_s: float = 0.25
) -> None:
    """Sets the health service by the watch until cancelled; NOT_SERVING until ``ready``."""
    serving = False
    while True:
        now_serving = ready() and watch.healthy()
        if now_serving != serving:
            serving = now_serving
            set_serving(serving)
        await asyncio.sleep(every_s)
