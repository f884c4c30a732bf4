"""From answers to rows, and from rows to tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tests.bench.gpu.fronts.client import Answer

Row = dict[str, Any]
SLOS = ((0.5, 0.020), (0.2, 0.010))
"""Most seconds to a first token, and a token after it."""


def row_of(system: str, load: str, repeats: Sequence[Sequence[Answer]]) -> Row:
    """Return the row of a load: medians of repeats, percentiles of all their answers, in milliseconds."""
    every = [answer for repeat in repeats for answer in repeat]
    gaps = [gap * 1e3 for answer in every for gap in answer.gaps_s]
    first = [answer.first_s * 1e3 for answer in every]
    speeds = [sum(answer.tokens for answer in repeat) / _ended(repeat) for repeat in repeats]
    return {
        "system": system,
        "load": load,
        "answers": len(every),
        "tok_s": round(statistics.median(speeds)),
        "tok_s_all": [round(speed) for speed in speeds],
        "tokens_an_event": round(statistics.mean(count for one in every for _, count in one.arrivals), 2),
        "first_ms": {"p50": percentile(first, 50), "p99": percentile(first, 99)},
        "gaps_ms": {"p50": percentile(gaps, 50), "p99": percentile(gaps, 99)},
        "goodput_tok_s": [round(statistics.median(_good(repeat, *slo) for repeat in repeats)) for slo in SLOS],
    }


def percentile(values: Sequence[float], part: int) -> float:
    """Return what so many of a hundred values are at most; 0 of none."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, len(ordered) * part // 100)], 2) if ordered else 0.0


def table(rows: Sequence[Row]) -> str:
    """Markdown, a line for each load and system; ratios are to the best other system of the load."""
    goods = [f"within {first:g} s, {token * 1e3:g} ms a token" for first, token in SLOS]
    head = [
        "load",
        "system",
        "tok/s",
        "ratio",
        "first p50, ms",
        "p99",
        "gaps p50, ms",
        "p99",
        *goods,
    ]
    lines = [head, ["---"] * len(head), *(_line(row, rows) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _line(row: Row, rows: Sequence[Row]) -> list[str]:
    others = [one["tok_s"] for one in rows if one["load"] == row["load"] and one["system"] != "paceline"]
    ratio = f"{row['tok_s'] / max(others):.2f}" if row["system"] == "paceline" and others else ""
    times = [*row["first_ms"].values(), *row["gaps_ms"].values()]
    shown = [f"{row['tok_s']:,}", ratio, *(f"{one:g}" for one in times)]
    return [row["load"], row["system"], *shown, *(f"{one:,}" for one in row["goodput_tok_s"])]


def _ended(answers: Sequence[Answer]) -> float:
    return max(answer.arrivals[-1][0] for answer in answers)


def _good(answers: Sequence[Answer], first_s: float, token_s: float) -> float:
    """Tokens a second of the answers that came as quickly as that."""
    good = [one for one in answers if one.first_s <= first_s and one.a_token_s <= token_s]
    return sum(answer.tokens for answer in good) / _ended(answers)
