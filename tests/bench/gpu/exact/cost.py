"""What exactness costs: steps of this tree and of the tree before it in turn, each time in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.stack import REPOSITORY
from tests.bench.gpu.exact.report import Row
from tests.bench.gpu.exact.step_times import Case, cases

TURNS = ("now", "before", "now", "before")
RUN_S = 240.0


def cost_rows(against: Path, tiny: bool) -> tuple[list[Row], bool]:
    """One row for each case, and whether every ratio is within its bar."""
    with tempfile.TemporaryDirectory(prefix="trees") as folder:
        trees = {"now": compose(Path(folder) / "now", REPOSITORY), "before": compose(Path(folder) / "before", against)}
        runs = [(turn, _timed(trees[turn], tiny)) for turn in TURNS]
    for turn, run in runs:
        expected = (against if turn == "before" else REPOSITORY).resolve()
        assert Path(run["services"]).is_relative_to(expected), f"{run['services']} was timed for {turn}"
        print(f"{turn}: {run['seconds']}", file=sys.stderr)
    rows = [ratio_row(case, [(turn, run["cases"][case.name]) for turn, run in runs]) for case in cases(tiny)]
    rows[0] |= {"before_commit": _commit(against)}
    return rows, all(row["cost"]["ratio"] <= row["cost"]["bar"] for row in rows)


def compose(folder: Path, tree: Path) -> Path:
    """A tree whose services are another's, and everything else this one's: both are timed by the same code."""
    folder.mkdir()
    for entry in REPOSITORY.iterdir():
        if not entry.name.startswith("."):
            (folder / entry.name).symlink_to((tree.resolve() / "services") if entry.name == "services" else entry)
    return folder


def ratio_row(case: Case, runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Row:
    """Median against median, and by how much the runs of one side differ."""
    sides = {side: [float(run["us"]) for turn, run in runs if turn == side] for side in ("now", "before")}
    medians = {side: statistics.median(times) for side, times in sides.items()}
    spread = max(max(times) / min(times) - 1 for times in sides.values())
    return {
        "cost": {
            "step": case.name,
            "us": round(medians["now"], 1),
            "before_us": round(medians["before"], 1),
            "ratio": round(medians["now"] / medians["before"], 4),
            "bar": case.bar,
            "spread": round(spread, 4),
            "all": sides,
            "prefixes": min(int(run["prefixes"]) for _, run in runs),
        }
    }


def _timed(tree: Path, tiny: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.gpu.exact.step_times", *(["--tiny", "--seconds", "0.05"] * tiny)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=RUN_S)
    if done.returncode:
        raise RuntimeError(f"{tree.name}: {done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _commit(tree: Path) -> str:
    """What a tree with a history of its own is at."""
    if not (tree / ".git").exists():
        return tree.name
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
