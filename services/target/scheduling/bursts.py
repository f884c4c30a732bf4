"""Decoding pauses while a burst of prompts is computed.

A round of few rows costs nearly as much as a full one, and rows that start together end together.
"""


class BurstPause:
    """All rows pause while `(requests in prefill - 1) * burst_rows >= rows`, but for `pause_s` seconds at most.

    The seconds count from one round with rows to the next, so the round of prompts that comes before the latter must
    end in time: it should take as long as the last one without rows did.
    """

    def __init__(self, pause_s: float, burst_rows: int) -> None:
        self._pause_s, self._burst_rows = pause_s, burst_rows
        self._decoded = float("-inf")
        self._prompts_s = 0.0

    def pauses(self, rows: int, prefilling: int, now: float) -> bool:
        """Whether a round planned now leaves out its rows."""
        burst = (prefilling - 1) * self._burst_rows >= rows
        pauses = burst and now - self._decoded + self._prompts_s < self._pause_s
        if not pauses:
            self._decoded = now
        return pauses

    def landed(self, seconds: float) -> None:
        """A round of prompts alone took so long."""
        self._prompts_s = seconds
