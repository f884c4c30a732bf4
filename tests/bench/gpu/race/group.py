"""One group of the race from its plan to a result; both sides are handed in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.bench.gpu.race.meter import Sample, beside
from tests.bench.gpu.race.plan import PACELINE, Job, Leg
from tests.bench.gpu.race.rows import Drafter, Measured, row_of, unsteady

Row = dict[str, Any]
Side = Callable[[Leg], tuple[str, list[Measured]]]
"""Runs a leg; returns the side's version and a measurement for each of its jobs."""


class Group:
    """What all legs of a group have measured."""

    def __init__(
        self,
        legs: Sequence[Leg],
        sides: Mapping[str, Side],
        tell: Callable[[Group], object] = lambda so_far: None,
    ) -> None:
        """Runs all legs, in order, and after each tells how far it is."""
        self.versions: dict[str, str] = {}
        self.seconds: list[tuple[str, int]] = []
        self._measured: dict[tuple[str, Job], list[Measured]] = {}
        for leg in legs:
            began = time.monotonic()
            version, measured = sides[leg.side](leg)
            self.seconds.append((leg.side, round(time.monotonic() - began)))
            self.versions[leg.side] = version
            for job, one in zip(leg.jobs, measured, strict=True):
                self._measured.setdefault((leg.side, job), []).append(one)
            tell(self)

    def rows(self, samples: Sequence[Sample], drafter: Drafter | None = None, closed: bool = False) -> list[Row]:
        """A row for each load and mode of each side, or those of closed loops; `drafter` is paceline's."""
        return [
            row_of(self._system(side), job, legs, samples, (drafter or Drafter()) if side == PACELINE else None)
            for (side, job), legs in self._measured.items()
            if bool(job.seconds) == closed
        ]

    def marks(self) -> list[Row]:
        """Rows whose legs lie too far apart to claim anything by."""
        found = [(side, unsteady(job, legs)) for (side, job), legs in self._measured.items()]
        return [{"system": self._system(side), **mark} for side, mark in found if mark is not None]

    def reasons(self, samples: Sequence[Sample]) -> int:
        """NVML's bits of what slowed the clock while anything was timed."""
        repeats = [repeat for legs in self._measured.values() for leg in legs for repeat in leg.repeats]
        return beside(samples, [(repeat.began, repeat.ended) for repeat in repeats]).reasons

    def _system(self, side: str) -> str:
        return side if side == PACELINE else f"{side}-{self.versions[side]}"
