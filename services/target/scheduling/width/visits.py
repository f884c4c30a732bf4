"""What a width costs when its rounds follow one another, found by a visit: a run of them between two of another width.

A GPU at its limit of power lowers its clock for rounds that need more, within some rounds. One round of another width
shows its cost at the clock of the width in use, which may be several percent off.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import fmean, median

from services.target.core.width import Width

RUN = 16
"""Rounds of a run: the clock follows within the first half, and the second is measured."""
SHORT_RUN = 8
"""Of trees from chains, or the other way: all but the first round are measured, in which the host works for others."""
_LEAST = 4


def scatter(micros: Sequence[float]) -> float:
    """By what share of the middle one rounds differ from it, on average."""
    middle = median(micros)
    return fmean(abs(each - middle) for each in micros) / middle


class Visit:
    """Rounds of `width` and, behind them, again of `home`, whose rounds before took `before` microseconds each."""

    def __init__(self, width: Width, home: Width, before: list[float], run: int = RUN) -> None:
        self.width, self.home, self._run = width, home, run
        self._first = 1 if run == SHORT_RUN else run // 2
        self._micros: tuple[list[float], list[float], list[float]] = (before[self._first - run :], [], [])
        self._planned = self._landed = 0

    def next(self) -> Width | None:
        """The width of the next round; None when all are planned."""
        self._planned += 1
        if self._planned > 2 * self._run:
            return None
        return self.width if self._planned <= self._run else self.home

    def landed(self, width: Width, micros: float | None) -> None:
        """A round has landed: one that was planned before the visit, or its own in order."""
        if self._landed == 0 and width != self.width:
            return
        self._landed += 1
        run, place = divmod(self._landed - 1, self._run)
        if run < 2 and place >= self._first and micros is not None:
            self._micros[1 + run].append(micros)

    @property
    def ended(self) -> bool:
        """Whether its last round has landed."""
        return self._landed >= 2 * self._run

    def dearer(self) -> float | None:
        """The log of what a round of the width takes, by one at home; None where too few could be measured.

        Contexts grow meanwhile, so those at home are the mean of before and behind, if both could be.
        """
        before, own, after = (log(median(each)) if len(each) >= _LEAST else None for each in self._micros)
        home = [each for each in (before, after) if each is not None]
        return own - fmean(home) if own is not None and home else None
