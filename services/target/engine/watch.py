"""Health by progress: steps must advance while work is pending, turns must always advance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from services.common.metrics.catalogue import TargetMetrics

_POLL_S = 0.25
_LOOKS = 3
"""Fewest looks without progress before the verdict: a watcher that was itself stopped or starved looks late."""

Setter = Callable[[bool], Awaitable[None]]


class Pulse(Protocol):
    """The part of an engine that a watcher reads."""

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
        self._looks = 0
        self.still_s = 0.0
        """Seconds, as of the last look, for which the engine has not moved; 0 until enough looks agree."""

    def healthy(self) -> bool:
        """Whether the engine makes progress."""
        now = self._clock()
        steps, turns = self._pulse.steps, self._pulse.turns
        if steps != self._seen[0] or not self._pulse.pending:
            self._stepped = now
        if turns != self._seen[1]:
            self._turned = now
        self._seen = (steps, turns)
        still_s = max(now - self._stepped, now - self._turned)
        self._looks = self._looks + 1 if still_s > 0 else 0
        self.still_s = still_s if self._looks >= _LOOKS else 0.0
        return self.still_s < self._stall_s


async def keep_health(
    watch: EngineWatch, ready: Callable[[], bool], set_serving: Setter, set_live: Setter, metrics: TargetMetrics
) -> None:
    """Sets liveness and readiness by the watch until cancelled: not live while stuck, not serving until ``ready``."""
    serving, live = False, True
    while True:
        healthy = watch.healthy()
        if (ready() and healthy) != serving:
            serving = not serving
            await set_serving(serving)
            metrics.ready.set(serving)
        if healthy != live:
            live = healthy
            await set_live(live)
            metrics.engine_stuck.set(not live)
        await asyncio.sleep(_POLL_S)
