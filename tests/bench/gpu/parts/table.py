"""Rounds put together from the stamps of both processes, and the medians of their parts."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.bench.gpu.parts.stamps import Point, Stamp

Row = dict[str, Any]
Shape = tuple[int, int]
ORDER = (
    Point.DRAFTS_READ,
    Point.FORWARD,
    Point.HEAD,
    Point.COMMITTED,
    Point.CONTEXT_WRITTEN,
    Point.PUBLISHED,
    Point.ASKED,
    Point.DRAFTED,
    Point.DRAFTS_WRITTEN,
)
PARTS = (
    "forward",
    "head",
    "commit",
    "context",
    "publish",
    "to the drafter",
    "draft",
    "write drafts",
    "to the target",
)
_LEAST = 20
"""Rounds of a shape that are told of."""


def rounds_of(stamps: Sequence[Stamp]) -> dict[Shape, list[list[float]]]:
    """The parts of each whole round, microseconds, by bucket and width.

    A round goes from one reading of drafts to the next one of the same shape, with all points once and in order. What
    does not, like the steps of warm-up and the last round of a load, is left out.
    """
    starts = [number for number, stamp in enumerate(stamps) if stamp[2] == Point.DRAFTS_READ]
    found: dict[Shape, list[list[float]]] = defaultdict(list)
    for first, after in pairwise(starts):
        one = stamps[first : after + 1]
        shapes, points = {stamp[:2] for stamp in one}, tuple(stamp[2] for stamp in one)
        if len(shapes) == 1 and points == (*ORDER, Point.DRAFTS_READ):
            found[one[0][:2]].append([(late[3] - early[3]) / 1e3 for early, late in pairwise(one)])
    return found


def rows_of(rounds: Mapping[Shape, Iterable[list[float]]]) -> list[Row]:
    """A row for each shape: medians of the parts and of whole rounds, and what the parts leave unexplained."""
    rows: list[Row] = []
    for (bucket, width), found in sorted(rounds.items()):
        parts = list(zip(*found, strict=True))
        if not parts or len(parts[0]) < _LEAST:
            continue
        medians = [round(statistics.median(part), 1) for part in parts]
        whole = statistics.median(sum(one) for one in zip(*parts, strict=True))
        rows.append(
            {"sequences": bucket, "width": width, "rounds": len(parts[0]), "round_us": round(whole, 1)}
            | {"parts_us": dict(zip(PARTS, medians, strict=True)), "unexplained": round(1 - sum(medians) / whole, 4)}
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines: list[Sequence[object]] = [("sequences x width", "rounds", "round", *PARTS), ["---"] * (3 + len(PARTS))]
    for row in rows:
        shape = f"{row['sequences']} x {row['width']}"
        lines.append((shape, row["rounds"], row["round_us"], *(row["parts_us"][part] for part in PARTS)))
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)
