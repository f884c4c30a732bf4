"""Decoding pauses while a burst of prompts is computed.

A round of few rows costs nearly as much as a full one, and rows that start together end together. A round that ends a
pause brings each row one token: what drafts would take, prompts wait for.
"""


class BurstPause:
    """All rows pause in a burst, `(requests in prefill - 1) * burst_rows >= rows`, but for `pause_s` seconds at most.

    The seconds count from `decoded`, when a round was last planned that did not pause, to the end of the next round: it
    should take `token_s` for each of its prompt tokens, as the last one without rows did.
    """

    def __init__(self, pause_s: float, burst_rows: int) -> None:
        self._pause_s, self._burst_rows = pause_s, burst_rows
        self.decoded = float("-inf")
        self.token_s = 0.0

    def is_burst(self, rows: int, prefilling: int) -> bool:
        """Whether so many prompts are one, where so many rows decode."""
        return (prefilling - 1) * self._burst_rows >= rows

    def pauses(self, now: float, tokens: int) -> bool:
        """Whether a round of so many prompt tokens, planned now in a burst, leaves out its rows."""
        return now - self.decoded + tokens * self.token_s < self._pause_s
