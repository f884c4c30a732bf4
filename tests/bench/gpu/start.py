"""python -m tests.bench.gpu.start: seconds from nothing until a pair serves with its drafter, by what is cached.

The first start finds nothing that was compiled. The second one finds compiled kernels, as an image may bring them, and
no verdict of the check that rows are equal. The third finds both. Weights are random and drawn on the GPU: what reading
them takes is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.gpu.mps import Mps
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.race.scale import FULL_SCALE, TINY_SCALE
from tests.bench.gpu.results import circumstances
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import SHAPES
from tests.bench.race import FIRST_SHAPE

Row = dict[str, Any]
CACHED = ("nothing", "kernels", "kernels and verdict")
TOLD = {"compiled ahead": "compiled", "steps captured": "captured", "rows compared": "compared"}
"""Messages of a service's log that tell the seconds of a part, and the part."""
OF_EVERY_LINE = {"time", "level", "service", "pair", "logger", "message"}
LONGEST = 200
"""Characters of what a line of the log says beside its message."""
COLUMNS = ("cached", "ready_s", *(f"{who} {part}" for who in ("target", "drafter") for part in TOLD.values()))


def main() -> int:
    """Starts the pair three times."""
    chosen = _arguments()
    scale = TINY_SCALE if chosen.tiny else FULL_SCALE
    shape = "tiny" if chosen.tiny else chosen.shape
    settings = replace(scale.settings(chosen.memory_gb), slots=chosen.slots, shape=SHAPES[shape])
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="pl-cache-") as cache:
        for cached in CACHED[: chosen.starts]:
            if cached == "kernels":
                shutil.rmtree(Path(cache) / "paceline-exact", ignore_errors=True)
            rows.append({"cached": cached, **started(settings, chosen, {"TRITON_CACHE_DIR": cache})})
            print(json.dumps(rows[-1]), flush=True)
    told = {"bench": "start", **circumstances(shape, "tests.bench.gpu.start"), "threads": chosen.threads, "rows": rows}
    print(table(rows), json.dumps(told), sep="\n")
    return 0


def started(settings: RigSettings, chosen: argparse.Namespace, environment: Mapping[str, str]) -> Row:
    """Seconds of one start and of its parts."""
    flags = ("--compile-threads", str(chosen.threads))
    with Mps(settings.device == "cuda") as shared, tempfile.TemporaryDirectory(prefix="pl") as folder:
        options = PairOptions(
            environment={**shared, **environment}, drafter_weights=chosen.drafter_weights, short_blocks=True,
            flags=flags, drafter_flags=flags, target="services.target", synthetic=False,
        )  # fmt: skip
        start, since = time.monotonic(), datetime.now(UTC)
        with ServedPair(settings, Path(folder), options) as pair:
            ready_s = time.monotonic() - start
            logs = {process.name: process.log.read_text(errors="replace") for process in (pair.target, pair.drafter)}
        parts = {f"{who} {part}": seconds for who, log in logs.items() for part, seconds in parts_of(log.splitlines())}
        told = sorted(line for who, log in logs.items() for line in timeline(who, log.splitlines(), since))
        print(*(f"{seconds:7.1f} s  {line}" for seconds, line in told), sep="\n", flush=True)
    return {"ready_s": round(ready_s, 1), **parts}


def timeline(who: str, lines: Iterable[str], since: datetime) -> Iterable[tuple[float, str]]:
    """What a service's log tells of its start: seconds since the start, and the message with what it says of itself."""
    for told in _records(lines):
        moment = datetime.fromisoformat(told["time"])
        given = {key: value for key, value in told.items() if key not in OF_EVERY_LINE}
        yield (moment - since).total_seconds(), f"{who}: {told['message']} {json.dumps(given)[:LONGEST]}"


def parts_of(lines: Iterable[str]) -> Iterable[tuple[str, float]]:
    """The parts that a service's log tells of, and their seconds."""
    for told in _records(lines):
        if told["message"] in TOLD and "seconds" in told:
            yield TOLD[told["message"]], round(float(told["seconds"]), 1)


def _records(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and {"time", "message"} <= told.keys():
            yield told


def table(rows: Iterable[Row]) -> str:
    """Markdown."""
    lines: list[list[object]] = [list(COLUMNS), ["---"] * len(COLUMNS)]
    lines += [[row.get(column, "") for column in COLUMNS] for row in rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default=FIRST_SHAPE, help="of the model")
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="that compile; 1: none ahead")
    parser.add_argument("--starts", type=int, default=len(CACHED), help="the first so many")
    parser.add_argument("--drafter-weights", choices=("dtype", "int8"), default="int8")
    parser.add_argument("--memory-gb", type=float, default=56.0)
    parser.add_argument("--tiny", action="store_true", help="so small that a CPU shows that all of it runs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
