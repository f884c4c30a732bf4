"""How busy a target is: what routing reads, and when to come back after a refusal."""

from dataclasses import dataclass

SHORTEST_S, LONGEST_S = 0.5, 30.0
"""Between these a refused client is told to come back."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a target; `free_blocks` counts evictable blocks too."""

    running: int
    waiting: int
    slots: int
    queued_tokens: int
    free_blocks: int
    total_blocks: int


class AdmissionRate:
    """Learns how long the queue takes to move by one request."""

    def __init__(self) -> None:
        self._gap_s = 0.0
        self._last: float | None = None

    def admitted(self, now: float) -> None:
        """Notes that a request got its first slot."""
        if self._last is not None:
            self._gap_s += 0.1 * (now - self._last - self._gap_s)
        self._last = now

    def retry_after_s(self, waiting: int) -> float:
        """Seconds after which half of a queue of `waiting` requests should have left."""
        return min(LONGEST_S, max(SHORTEST_S, self._gap_s * waiting / 2))
