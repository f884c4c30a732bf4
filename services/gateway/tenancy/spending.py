"""Tokens of a tenant within the last minute; pure, with the clock handed in."""

from collections import deque
from collections.abc import Callable

MINUTE_S = 60

Clock = Callable[[], float]


class Spending:
    """Tokens by the second in which they were used, and those that running requests may still need."""

    def __init__(self, clock: Clock) -> None:
        """Starts with none; `clock` gives seconds."""
        self._clock = clock
        self._seconds: deque[tuple[int, int]] = deque()
        self._spent = 0
        self.reserved = 0

    @property
    def used(self) -> int:
        """Tokens of the last minute, those that are reserved included."""
        self._forget()
        return self._spent + self.reserved

    def spend(self, tokens: int) -> None:
        """Counts tokens that are used now."""
        now = int(self._clock())
        if self._seconds and self._seconds[-1][0] == now:
            tokens_before = self._seconds.pop()[1]
            self._seconds.append((now, tokens_before + tokens))
        else:
            self._forget()
            self._seconds.append((now, tokens))
        self._spent += tokens

    def frees_s(self, tokens: int) -> float:
        """Seconds until so many of the spent tokens are a minute old; the whole minute where fewer were spent."""
        self._forget()
        for second, spent in self._seconds:
            tokens -= spent
            if tokens <= 0:
                return max(second + 1 + MINUTE_S - self._clock(), 0.0)
        return float(MINUTE_S)

    def _forget(self) -> None:
        oldest = self._clock() - MINUTE_S
        while self._seconds and self._seconds[0][0] + 1 <= oldest:
            self._spent -= self._seconds.popleft()[1]
