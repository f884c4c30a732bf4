"""Decoding pauses while a burst of prompts is computed.

A round of few rows costs nearly as much as a full one, and rows that start together end together. A round that ends a
pause brings each row one token: what drafts would take, prompts wait for.
"""

import statistics
from collections import deque
from collections.abc import Iterable

from services.target.core.plan import Plan
from services.target.scheduling.settings import SchedulerSettings

_OWN = 8
"""Rows of a burst that met nobody wait for so many pauses: each has one long gap, where it had several short ones."""
_GATHERS_S = 0.1
"""Within it what follows the first prompt that met nobody is of its burst."""


class BurstPause:
    """All rows pause in a burst, `(requests in prefill - 1) * burst_rows >= rows`, but for `pause_s` seconds at most.

    A round leaves them out if the one behind it can still bring them a token in time. As many prompt tokens may come
    meanwhile as came since the last round was planned. Each should take as long as in the median of the last three
    rounds without rows: a host that falls behind sees one round too long and the next too short. A pack that takes
    longer than a pause has rows always. Where nobody decoded when the burst began, its own rows wait for `_OWN` pauses.
    `served_at` is when rows last got their tokens.
    """

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._pack_tokens = settings.prompt_tokens(rows=False, burst=True)
        self._latest: deque[float] = deque(maxlen=3)
        self._token_s = 0.0
        self.served_at = float("-inf")
        self._nobody_waits = 0
        self._alone_at = float("-inf")

    def is_burst(self, rows: int, prefilling: int) -> bool:
        """Whether so many prompts are one, where so many rows decode."""
        return (prefilling - 1) * self._settings.burst_rows >= rows

    def pauses(self, now: float, left: int, arrived: int, in_flight: Iterable[Plan]) -> bool:
        """Whether a round planned now, in a burst with so many prompt tokens left, leaves out its rows.

        Of them `arrived` came since the last round was planned.
        """
        began, waited = self.served_at, now - self.served_at
        for plan in in_flight:
            serves = self._serves(plan)
            began, waited = (now, 0.0) if serves else (began, waited + self._seconds(plan.prefill_tokens))
        longest = self._settings.pause_s * (_OWN if began < self._alone_at + _GATHERS_S else 1)
        return waited + self._seconds(left) + self._seconds(left - self._pack_tokens + arrived) < longest

    def alone(self, number: int, now: float) -> None:
        """Remember that nobody decoded when a round was planned: its first tokens are the latest that anybody got."""
        self._nobody_waits, self._alone_at = number, now

    def landed(self, plan: Plan, now: float, seconds: float) -> None:
        """Remember when a round of no rows ended, and how long it took.

        Less than half a pack tells little of a whole one.
        """
        if self._serves(plan):
            self.served_at = now
        if seconds and 2 * plan.prefill_tokens >= self._pack_tokens:
            self._latest.append(seconds / plan.prefill_tokens)
            self._token_s = statistics.median(self._latest)

    def _serves(self, plan: Plan) -> bool:
        return bool(plan.rows) or plan.number <= self._nobody_waits

    def _seconds(self, tokens: int) -> float:
        """What the next of so many prompt tokens should take, those of one pack at most."""
        return min(max(0, tokens), self._pack_tokens) * self._token_s
