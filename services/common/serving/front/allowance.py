"""How much one client may ask for in a time: what comes sooner waits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MOST_NAMES = 4096


class Allowance:
    """So many at once and so many a second."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        """All of the burst is there."""
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = burst, clock()

    def take(self, amount: float = 1.0) -> float:
        """Takes it at once; returns the seconds that the next must wait."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._left / self._rate)


class Allowances:
    """One for each name. Those that were not used for longest are forgotten when there are too many."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        """Nobody has one yet."""
        self._rate, self._burst, self._clock = rate, burst, clock
        self._of: OrderedDict[str, Allowance] = OrderedDict()

    def take(self, name: str, amount: float = 1.0) -> float:
        """As that of the name does."""
        if name not in self._of:
            self._of[name] = Allowance(self._rate, self._burst, self._clock)
        self._of.move_to_end(name)
        while len(self._of) > MOST_NAMES:
            self._of.popitem(last=False)
        return self._of[name].take(amount)
