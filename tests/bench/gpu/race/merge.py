"""One result file of groups that were run one after the other, perhaps on different machines of one kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.race import load_of

Result = dict[str, Any]
SAME = ("bench", "device", "commit")
LISTS = ("rows", "closed")
"""Loads that start at once, and closed loops."""


class MergeError(ValueError):
    """Two results that do not belong into one file."""


def merge(known: Result | None, new: Result) -> Result:
    """Return both in one: a load's rows all come from one go, so those of loads that were run again are replaced.

    Raises:
        MergeError: device, commit or a version differ.
    """
    if known is None:
        return new | {name: _ordered(new.get(name, [])) for name in LISTS}
    for name in SAME:
        if known[name] != new[name]:
            raise MergeError(f"{name}: {known[name]} was measured before, now {new[name]}")
    for name, version in known["versions"].items():
        if new["versions"].get(name, version) != version:
            raise MergeError(f"versions: {name} was {version} before, now is {new['versions'][name]}")
    lists = {name: _ordered(_replaced(known.get(name, []), new.get(name, []))) for name in LISTS}
    groups = known.get("groups", {}) | new["groups"]
    versions = known["versions"] | new["versions"]
    return known | {"versions": versions, "command": new["command"], "groups": groups} | lists


def _replaced(known: Sequence[Result], new: Sequence[Result]) -> list[Result]:
    again = {load_of(row) for row in new}
    return [row for row in known if load_of(row) not in again] + list(new)


def add(folder: Path, date: str, new: Result) -> Path:
    """Merge a result into the file of this date and commit, and return its path.

    Raises:
        MergeError: another device or version wrote there; the result is kept in the file that the error names.
    """
    path = folder / f"race_{date}.json"
    if path.exists() and json.loads(path.read_text())["commit"] != new["commit"]:
        path = folder / f"race_{date}_{new['commit']}.json"
    known = json.loads(path.read_text()) if path.exists() else None
    try:
        merged = merge(known, new)
    except MergeError as error:
        kept = folder / f"unmerged_{path.name}"
        kept.write_text(text_of(new))
        raise MergeError(f"{error}; kept in {kept}") from error
    path.write_text(text_of(merged))
    return path


def text_of(result: Result) -> str:
    """JSON with one row a line."""
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in result.items() if name not in LISTS]
    for name in LISTS:
        rows = ",\n  ".join(json.dumps(row) for row in result.get(name, []))
        parts += [f"{json.dumps(name)}: [\n  {rows}\n ]"] if name in result else []
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _ordered(rows: Iterable[Result]) -> list[Result]:
    """Speculation before plain, long answers first, few requests first; of a load vLLM first."""
    return sorted(rows, key=lambda row: (row["profile"] is None, row["profile"] or "", -row["out"], row["concurrency"],
                                         row["system"] == "paceline", row["mode"], -(row["k"] or 0)))  # fmt: skip
