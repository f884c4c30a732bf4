"""Rows of each stage in a JSON file of its own: a stage that this commit has run already is not run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]


class Results:
    """What was measured, by stage."""

    def __init__(self, folder: str, shape: str) -> None:
        """Without a folder nothing is kept and nothing is skipped."""
        self._folder = Path(folder) if folder else None
        self._circumstances = circumstances(shape)
        self._rows: dict[str, list[Row]] = {}
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def has(self, stage: str) -> bool:
        """Whether this commit has run the stage on this device; its rows then count as measured."""
        found = self._read(stage)
        if found is None or any(found[key] != self._circumstances[key] for key in ("commit", "device", "shape")):
            return False
        self._rows[stage] = found["rows"]
        return True

    def add(self, stage: str, rows: list[Row]) -> None:
        """Keeps a stage, whose every row tells how processes shared the GPU: mps, timeslice, none or alone."""
        unsaid = [row for row in rows if "gpu_sharing" not in row]
        if unsaid:
            raise ValueError(f"{stage}: gpu_sharing is missing in {unsaid[0]}")
        self._rows[stage] = rows
        if self._folder is not None:
            text = json.dumps({**self._circumstances, "rows": rows}, indent=1)
            self._path(stage).write_text(text + "\n")

    def rows(self, stage: str) -> list[Row]:
        """What a stage measured."""
        return self._rows[stage]

    def show(self) -> None:
        """A table, then one line of JSON."""
        rows = [row for stage in self._rows.values() for row in stage]
        for row in rows:
            tell(row)
        print(json.dumps({"bench": "gpu", **self._circumstances, "rows": rows}))

    def _path(self, stage: str) -> Path:
        assert self._folder is not None, "nothing is kept"
        return self._folder / f"gpu_{stage}.json"

    def _read(self, stage: str) -> dict[str, Any] | None:
        if self._folder is None or not self._path(stage).exists():
            return None
        found: dict[str, Any] = json.loads(self._path(stage).read_text())
        return found


def tell(row: Row) -> None:
    """One line of a table."""
    hidden = ("_all", "sha256", "fallbacks", "captures", "recaptures")
    shown = {key: value for key, value in row.items() if value is not None and not key.endswith(hidden)}
    print("  ".join(f"{key}={value}" for key, value in shown.items()), flush=True)


def verdict(rows: Sequence[Row]) -> int:
    """Print how many of the comparisons in these rows differ; return 1 where any does."""
    differ = sum(len(row.get("differ", ())) for row in rows)
    print(f"differ={differ} compared={sum(row.get('compared', 0) for row in rows)}")
    return int(differ > 0)


def short_name(device: str) -> str:
    """A device as names of files have it: h100, h200, or cpu."""
    return next((word.lower() for word in device.split() if word.startswith("H") and word[1:].isdigit()), "cpu")


def circumstances(shape: str, module: str = "tests.bench.gpu") -> Row:
    """Device, commit, versions and command of what was measured."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "commit": os.environ.get("BENCH_COMMIT", commit.stdout.strip()),
        "versions": {package: metadata.version(package) for package in ("torch", "grpcio", "protobuf")},
        "command": f"python -m {module} " + " ".join(sys.argv[1:]),
        "shape": shape,
    }
