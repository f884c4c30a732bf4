"""What a group should take: seconds of each leg, by saved speeds of the same or the nearest load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

from tests.bench.gpu.race.plan import LEAD_S, PACELINE, SGLANG, VLLM, Job, Leg, repeats_of
from tests.bench.race import FIRST_SHAPE, shape_of

Row = dict[str, Any]
STARTS = {PACELINE: 100.0, VLLM: 120.0, SGLANG: 130.0}
"""Seconds until a side serves, on a machine that has compiled nothing yet. Results tell what legs took."""
WARM_UP = {PACELINE: 8, VLLM: 16, SGLANG: 16}
"""Tokens of each request in the run that no one counts."""
LIMIT_S = 590.0


def saved_rows(folder: Path, shape: str = FIRST_SHAPE) -> list[Row]:
    """Rows of all saved races of a shape that tell the speed of a whole load, the latest file first.

    Of a shape that was never raced, those of the first one.
    """
    files = sorted(folder.glob("*race_*.json"), key=lambda file: file.name[-15:], reverse=True)
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    told = [row for row in rows if row.get("whole_tok_s") and row.get("prompts_s")]
    return [row for row in told if shape_of(row) == shape] or [row for row in told if shape_of(row) == FIRST_SHAPE]


def seconds_of(leg: Leg, rows: Sequence[Row]) -> float:
    """Seconds of a leg, its start included."""
    return STARTS[leg.side] + sum(_of_job(leg.side, job, rows) for job in leg.jobs)


def told(legs: Iterable[Leg], rows: Sequence[Row]) -> str:
    """The legs of a group with what they should take, and whether one command has room for them."""
    lines, total = [], 0.0
    for leg in legs:
        seconds = seconds_of(leg, rows)
        total += seconds
        ks = sorted({"chosen" if job.k is None else f"K={job.k}" for job in leg.jobs})
        lines.append(f"{seconds:6.0f} s  {leg.side}: {len(leg.jobs)} loads, {' '.join(ks)}")
    verdict = "fits" if total < LIMIT_S else "does not fit"
    return "\n".join([*lines, f"{total:6.0f} s in all, which {verdict} in {LIMIT_S:.0f}"])


def _of_job(side: str, job: Job, rows: Sequence[Row]) -> float:
    speed, prompt_s = _known(side, job, rows)
    whole, prompts = job.out * job.concurrency / speed, prompt_s * job.concurrency
    if job.seconds:
        return LEAD_S + job.seconds + whole
    # vLLM's arrivals are seen in one run more.
    repeats = repeats_of(job.concurrency)
    runs = repeats + (side != PACELINE)
    return runs * whole + (repeats + 1) * prompts + WARM_UP[side] * job.concurrency / speed


def _known(side: str, job: Job, rows: Sequence[Row]) -> tuple[float, float]:
    """Tokens a second by the nearest load that was saved, and seconds of one prompt.

    Of more requests speed grows: from 8 plain ones to 32 by three, here by the root of four.
    """

    def far(row: Row) -> tuple[bool, bool, float, bool]:
        ratio = row["concurrency"] / job.concurrency
        return (
            (row["mode"] == "plain") != (job.mode == "plain"),
            _side(row) != side,
            max(ratio, 1 / ratio),
            (row["out"] != job.out),
        )

    nearest = min(rows, key=far)
    more = max(job.concurrency / nearest["concurrency"], 1.0)
    return float(nearest["whole_tok_s"]) * sqrt(more), float(nearest["prompts_s"]) / nearest["concurrency"]


def _side(row: Row) -> str:
    return str(row["system"]).split("-")[0]
