"""How far a start is: records of the log that whoever started the process shows to people."""

import logging
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)
GAP_S = 1.0
"""At least so long between two records of a stage, beside its first and its last."""
WEIGHTS = "weights"
"""Bytes of a checkpoint that are read."""
STEPS = "steps"
"""Steps that are captured; the first ones compile kernels."""
MEASURED = "measured"
"""Shapes of rounds whose time is taken."""


class Progress:
    """One stage; its first record comes with the first ``add``, so that nothing is told of what never begins."""

    def __init__(self, stage: str, of: int, clock: Callable[[], float] = time.monotonic) -> None:
        """``of`` is how much the whole stage is."""
        self._stage, self._of, self._clock = stage, of, clock
        self._done, self._told_s = 0, float("-inf")

    def add(self, amount: int = 1) -> None:
        """So much more is done; what exceeds the whole counts as the whole."""
        self._done, before = min(self._done + amount, self._of), self._done
        finished = before < self._of == self._done
        if finished or self._clock() - self._told_s >= GAP_S:
            self._told_s = self._clock()
            _LOG.info("start", extra={"stage": self._stage, "done": self._done, "of": self._of})


def ended(stage: str) -> None:
    """Tells that a stage is over that was not finished: a drafter reads only its half of a checkpoint."""
    _LOG.info("start", extra={"stage": stage, "done": 0, "of": 0})
