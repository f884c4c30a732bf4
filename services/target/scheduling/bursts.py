"""Decoding pauses while a burst of prompts is computed.

A round of few rows costs nearly as much as a full one, and rows that start together end together. A round that ends a
pause brings each row one token: what drafts would take, prompts wait for.
"""

from services.target.scheduling.settings import SchedulerSettings


class BurstPause:
    """All rows pause in a burst, `(requests in prefill - 1) * burst_rows >= rows`, but for `pause_s` seconds at most.

    These count from `decoded`, when a round was last planned that did not pause, to the end of the next round: each of
    its prompt tokens should take as long as in the last round without rows (`took`).
    """

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._pack_tokens = settings.prompt_tokens(rows=False, burst=True)
        self.decoded = float("-inf")
        self._token_s = 0.0

    def is_burst(self, rows: int, prefilling: int) -> bool:
        """Whether so many prompts are one, where so many rows decode."""
        return (prefilling - 1) * self._settings.burst_rows >= rows

    def took(self, tokens: int, seconds: float) -> None:
        """Remember how long a round of no rows took. Less than half a pack tells little of a whole one."""
        if 2 * tokens >= self._pack_tokens:
            self._token_s = seconds / tokens

    def pauses(self, now: float, left: int) -> bool:
        """Whether a round planned now, in a burst with so many prompt tokens left, leaves out its rows."""
        return now - self.decoded + min(left, self._pack_tokens) * self._token_s < self._settings.pause_s
