"""python -m tests.bench.gpu.timeline FILE: what the rounds of a benchmark's target took, by what was in them.

A target of `tests.bench.gpu.pinned` writes them to the file that `BENCH_ROUNDS` names. A round takes from the commit
before it to its own, so a target that looks ahead shows what its GPU did.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from services.target.engine.recorder import CAPACITY, FlightRecorder, RoundEntry

VARIABLE = "BENCH_ROUNDS"
PAUSE_S = 0.2
"""A load ends where no round ended for so long."""
Row = dict[str, Any]


class NotedRounds(FlightRecorder):
    """Writes every round to a file too."""

    def __init__(self, file: Path, capacity: int = CAPACITY) -> None:
        """Adds to the file."""
        super().__init__(capacity)
        self._file = file.open("a", buffering=1)

    def add(self, entry: RoundEntry) -> None:
        """Adds a round."""
        super().add(entry)
        self._file.write(json.dumps(asdict(entry)) + "\n")


def read(file: Path) -> list[Row]:
    """The rounds of a file, in their order."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def table(rounds: Sequence[Row]) -> str:
    """Markdown: rounds of a kind, the median of what they took, and of their tokens."""
    kinds: dict[tuple[int, int, int], list[tuple[float, int]]] = defaultdict(list)
    for before, one in pairwise(rounds):
        took = one["ended"] - before["ended"]
        if took < PAUSE_S:
            kinds[one["requests"], one["width"], one["prefilled"]].append((took * 1e3, one["committed"]))
    head = ("requests", "width", "prompt tokens", "rounds", "ms", "tokens")
    lines: list[Sequence[object]] = [head, ["---"] * len(head)]
    lines += [(*kind, *_medians(found)) for kind, found in sorted(kinds.items())]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def _medians(found: Iterable[tuple[float, int]]) -> tuple[int, float, float]:
    took, tokens = zip(*found, strict=True)
    return len(took), round(statistics.median(took), 2), statistics.median(tokens)


if __name__ == "__main__":
    print(table(read(Path(sys.argv[1]))))
