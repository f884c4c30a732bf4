"""How busy a target is: what routing reads, and when to come back after a refusal."""

from dataclasses import dataclass


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

    def __init__(self, shortest_s: float = 0.5, longest_s: float = 30.0) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._gap_s = 0.0
        self._last: float | None = None

    def admitted(self, now: float) -> None:
        """Notes that a request got its first slot."""
        if self._last is not None:
            self._gap_s += 0.1 * (now - self._last - self._gap_s)
        self._last = now

    def retry_after_s(self, waiting: int) -> float:
        """Seconds after which half of a queue of `waiting` requests should have left."""
        return min(self._longest_s, max(self._shortest_s, self._gap_s * waiting / 2))
