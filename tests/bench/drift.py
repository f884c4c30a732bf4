"""Whether processes keep memory or descriptors, and whether acceptance moves, over a long run."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from tests.faults.rest import Footprint

ALLOWED_SHARE = 0.05
ALLOWED_DESCRIPTORS = 2
FEWEST = 12
"""Samples of one process that are enough for a verdict: its medians over the first and the last third are compared."""


class Drift:
    """Series of samples by process and of acceptance rates; processes come and go."""

    def __init__(self) -> None:
        self._samples: dict[int, list[Footprint]] = defaultdict(list)
        self._acceptance: list[float] = []

    def add(self, samples: dict[int, Footprint], acceptance: float | None) -> None:
        """Adds what was found after one cycle; None where the acceptance is not known."""
        for pid, sample in samples.items():
            self._samples[pid].append(sample)
        if acceptance is not None:
            self._acceptance.append(acceptance)

    def report(self) -> dict[str, object]:
        """The worst of every process that lived long enough, and the verdict."""
        long_lived = [series for series in self._samples.values() if len(series) >= FEWEST]
        resident = [change([one.resident_kib for one in series]) for series in long_lived]
        descriptors = [_thirds([one.descriptors for one in series]) for series in long_lived]
        kept = [last - first for first, last in descriptors]
        moved = change(self._acceptance) if len(self._acceptance) >= FEWEST else 0.0
        steady = max(resident, default=0.0) <= ALLOWED_SHARE and max(kept, default=0) <= ALLOWED_DESCRIPTORS
        return {
            "processes_judged": len(long_lived),
            "memory_growth": [round(each, 4) for each in resident],
            "descriptors_kept": kept,
            "acceptance_change": round(moved, 4),
            "steady": steady and abs(moved) <= ALLOWED_SHARE,
        }


def change(values: Sequence[float]) -> float:
    """Relative change from the first third to the last third, by medians."""
    first, last = _thirds(values)
    return last / first - 1.0 if first else 0.0


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    size = max(len(values) // 3, 1)
    return statistics.median(values[:size]), statistics.median(values[-size:])
