"""Whether what processes hold stays level over a long run: the slope of every series, as what it adds over the run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

FEWEST = 12
"""Samples of one process that are enough for a verdict."""

SHARE, KIB, COUNT = 0.05, 4096, 1.0
"""What may be added over the run: of memory the larger of a share and an amount, of all else that many."""


class Levels:
    """Samples over time, by what is measured and by whom; processes come and go."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)

    def add(self, at_s: float, samples: Mapping[tuple[str, str], float]) -> None:
        """Adds what was found at a time; keys are a measure, such as memory, and who has it."""
        for key, value in samples.items():
            self._series[key].append((at_s, value))

    def report(self) -> dict[str, object]:
        """The largest growth of every measure over the run and whose it was, who grew too much, and the verdict."""
        growth: dict[str, tuple[float, str]] = {}
        judged: dict[str, int] = defaultdict(int)
        grown = []
        for (measure, who), points in self._series.items():
            if len(points) < FEWEST:
                continue
            added = slope(points) * (points[-1][0] - points[0][0])
            judged[measure] += 1
            growth[measure] = max(growth.get(measure, (added, who)), (added, who))
            if added > allowed(measure, [value for _, value in points]):
                grown.append(f"{measure} of {who}: {added:+.1f}")
        return {
            "judged": dict(judged),
            "growth": {measure: round(added, 1) for measure, (added, _) in growth.items()},
            "of": {measure: who for measure, (_, who) in growth.items()},
            "grown": sorted(grown),
            "level": bool(judged) and not grown,
        }


def allowed(measure: str, values: Sequence[float]) -> float:
    """What a series may add over the run."""
    return max(SHARE * statistics.median(values), KIB) if measure == "memory_kib" else COUNT


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points, which no single jump moves."""
    found = [(b - a) / (later - earlier) for (earlier, a), (later, b) in combinations(points, 2) if later > earlier]
    return statistics.median(found) if found else 0.0
