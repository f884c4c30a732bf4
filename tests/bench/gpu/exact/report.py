"""Rows of what was compared: a table, a JSON file, and an exit status that says whether anything differs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bench.gpu.results import circumstances, short_name

Row = dict[str, Any]
MODULE = "tests.bench.gpu.exact"


def exact_row(what: str, streams: int, differ: int, **more: object) -> Row:
    """How many streams, or rows of a kernel, were compared, and how many differ."""
    return {"exact": {"what": what, "streams": streams, "differ": differ}, **more}


def conclude(stage: str, shape: str, rows: Iterable[Row], folder: str, passed: bool = True) -> int:
    """Prints and saves each row as it comes; returns the exit status.

    It is 1 when something differs, a row has compared nothing, there is no row, or `passed` is false.
    """
    document: Row = {"bench": f"exact {stage}", **circumstances(shape, MODULE), "rows": []}
    path = _path(folder, stage, document["device"]) if folder else None
    for row in rows:
        document["rows"].append(row)
        print(_line(row), flush=True)
        if path:
            path.write_text(json.dumps(document, indent=1) + "\n")
    found = [row["exact"] for row in document["rows"] if "exact" in row]
    if found:
        print(f"{stage}: {sum(one['streams'] for one in found)} compared, {sum(one['differ'] for one in found)} differ")
    fine = all(one["differ"] == 0 and one["streams"] > 0 for one in found)
    return 0 if passed and fine and document["rows"] else 1


def _path(folder: str, stage: str, device: str) -> Path:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"exact_{stage}_{short_name(device)}_{time.strftime('%Y-%m-%d')}.json"


def _line(row: Row) -> str:
    if "cost" in row:
        cost = row["cost"]
        times = f"{cost['us']:>10} / {cost['before_us']:<10} {cost['ratio']:.3f} (bar {cost['bar']})"
        return f"{times}  spread {cost['spread']:.3f}  {cost['step']}"
    exact = row["exact"]
    more = [f"{name}={value}" for name, value in row.items() if name != "exact"]
    return "  ".join([f"{exact['differ']:>8} of {exact['streams']:<9} {exact['what']}", *more])
