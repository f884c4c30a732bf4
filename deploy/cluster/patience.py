"""Decides when a service that does not work is restarted, and when its pair is given up; imports no ray."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from deploy.cluster.report import ActorReport, Answer, Missing

SILENT_READS = 3


@dataclass(frozen=True)
class Limits:
    """Seconds until a service must be ready, and for which a ready one may finish no turn."""

    startup_s: float
    stuck_s: float


class Patience:
    """Judges one service by what it answers, look after look; one that was refused for good would be refused again."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """The service starts now."""
        self._since = self._clock()
        self._pid = 0
        self._serves = False
        self._silent = 0
        self._refused = False

    def look(self, answer: Answer) -> str:
        """Why the service must be restarted; empty while it need not."""
        if answer is Missing.GONE and self._pid:
            self.begin()
        if isinstance(answer, Missing):
            self._silent += answer is Missing.SILENT
        else:
            self._answered(answer)
            if answer.still_s >= self._limits.stuck_s:
                return f"its engine has finished no turn for {answer.still_s:.0f} s"
        if self._serves:
            return f"{SILENT_READS} health reads failed" if self._silent >= SILENT_READS else ""
        late = not self._refused and self._clock() - self._since >= self._limits.startup_s
        return f"it is not ready after {self._limits.startup_s:.0f} s" if late else ""

    def _answered(self, report: ActorReport) -> None:
        if self._pid not in (0, report.pid):
            self.begin()
        self._pid, self._silent = report.pid, 0
        self._refused = report.failure is not None and report.failure.final
        self._serves = self._serves or report.ready


class Restarts:
    """Counts the restarts of a pair in a window of time."""

    def __init__(self, limit: int, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._window_s, self._clock = limit, window_s, clock
        self._known = 0
        self._times: deque[float] = deque()

    def exceeded(self, total: int) -> bool:
        """Whether the pair needs one more than the limit; total is how often it was restarted since the beginning."""
        now = self._clock()
        self._times.extend([now] * (total - self._known))
        self._known = total
        while self._times and now - self._times[0] > self._window_s:
            self._times.popleft()
        return len(self._times) > self._limit
