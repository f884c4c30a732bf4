"""Whether the engine's thread is about to launch a round: the event loop leaves it the interpreter then.

Python runs one thread at a time. Each operator of a launch lets go of the interpreter, and an event loop that reads one
frame after another gives it back only after the switch interval of 5 ms. So a burst of requests kept a GPU waiting for
tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

LAUNCH_S = 0.01
"""A launch that takes longer computes on the CPU, and is not waited for."""


class Launching:
    """Begun and ended by the engine's thread, awaited by the event loop's; `begun` costs no call to read."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Starts with no launch."""
        self._clock, self._since = clock, -inf
        self.begun = False
        self._waiting: list[Callable[[], object]] = []

    def begin(self) -> None:
        """A round is about to be planned and launched."""
        self._since, self.begun = self._clock(), True

    def end(self) -> None:
        """It is launched, or there is none; calls all that waited."""
        self._since, self.begun = -inf, False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    @property
    def lasts(self) -> bool:
        """Whether a launch is worth waiting for."""
        return self._clock() - self._since < LAUNCH_S

    def when_over(self, call: Callable[[], object]) -> bool:
        """Has `call` called at the end, on the engine's thread; False when there is nothing to wait for."""
        self._waiting.append(call)
        # An end between a look and the append would call nobody, so the look comes last.
        return self.lasts
