"""The race against vLLM as a table: `python -m tests.bench.race` prints the newest saved result as README shows it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"
FIGURES = {"decode_tok_s": "decode", "whole_tok_s": "whole load", "prompts_s": "prompts, s"}
SPEEDS = ("decode_tok_s", "whole_tok_s")
NONE = "-"
FIRST_SHAPE = "qwen3-4b"
"""Of rows that name none: the first races had no other."""
_DATES = 3
"""Loads are raced some at a time, so a set of them takes several dates."""


def shape_of(row: Row) -> str:
    """The model's shape."""
    return str(row.get("shape", FIRST_SHAPE))


def load_of(row: Row) -> tuple[str, str]:
    """What rows share that may be compared."""
    return shape_of(row), row["go"]


def newest(shape: str = FIRST_SHAPE) -> list[Path]:
    """The valid results of a shape: those of the latest dates that have loads which no later file has.

    What was measured later is later. The first races tell their date alone; their names follow one another.
    """
    saved = [file for file in RESULTS.glob("race_*.json") if _goes(file, shape)]
    files = sorted(saved, key=lambda file: (_date(file), _ended(file), file.name))
    latest = sorted({_date(file) for file in files})[-_DATES:]
    kept: list[Path] = []
    known: set[str] = set()
    for file in reversed([file for file in files if _date(file) in latest]):
        if not _goes(file, shape) <= known:
            kept.insert(0, file)
            known |= _goes(file, shape)
    return kept


def newest_rows(shape: str = FIRST_SHAPE) -> list[Row]:
    """Rows of the valid results of a shape; all of a load are of one file, and so of one machine and go."""
    goes: dict[str, list[Row]] = {}
    for file in newest(shape):
        rows = _rows(file, shape)
        goes |= {go: [row for row in rows if row["go"] == go] for go in dict.fromkeys(row["go"] for row in rows)}
    rows = [row for load in goes.values() for row in load]
    return sorted(rows, key=lambda row: (row["profile"] is None, row["profile"] or "", -row["out"], row["concurrency"]))


def _rows(file: Path, shape: str) -> list[Row]:
    return [row for row in json.loads(file.read_text())["rows"] if shape_of(row) == shape]


def _goes(file: Path, shape: str) -> set[str]:
    return {row["go"] for row in _rows(file, shape)}


def _date(file: Path) -> str:
    return file.stem.split("_")[1]


def _ended(file: Path) -> str:
    """When its last group had ended, in UTC; empty where a result tells no time."""
    groups = json.loads(file.read_text()).get("groups", {})
    return max((facts.get("ended", "") for facts in groups.values()), default="")


PEERS = {"vllm": "vLLM", "sglang": "SGLang"}


def table(rows: Iterable[Row], peer: str = "vllm") -> str:
    """Markdown: one line for each load, a peer's best setting beside what paceline chooses by itself.

    Ratios stand only between rows of one machine and go. Rows of other peers are left out.
    """
    goes: dict[str, list[Row]] = {}
    for row in rows:
        if row["system"] == "paceline" or row["system"].startswith(peer):
            goes.setdefault(row["go"], []).append(row)
    sides = [f"{side}: {name}" for side in (PEERS[peer], "paceline") for name in FIGURES.values()]
    head = ["profile", "out", "requests", *sides, "ratio: decode", "ratio: whole load"]
    lines = [head, ["---"] * len(head), *(_line(go) for go in goes.values())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latencies(rows: Iterable[Row]) -> str:
    """Markdown: of each row when tokens came, in milliseconds, and a closed loop's speed beside its seconds."""
    gaps = "between tokens p99", "beside prompts p99"
    head = ["load", "system", "setting", "first token p50", "p99", *gaps, "tok/s", "prompts, s"]
    lines = [head, ["---"] * len(head), *(_times(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _times(row: Row) -> list[str]:
    setting = f"K = {row['k']}" if row["k"] else row["mode"]
    weights = row.get("drafter_weights")
    kind = [weights] if weights not in (None, "dtype") else []
    kind += ["short blocks"] if row.get("short_blocks") else []
    beside = row.get("itl_beside_prompts_ms", {"p99": None})  # not in rows of earlier races
    gaps = row["itl_ms"]["p99"], beside["p99"]
    figures = [*row["ttft_ms"].values(), *gaps, row["whole_tok_s"], row["prompts_s"]]
    shown = [NONE if figure is None else f"{figure:,}" for figure in figures]
    return [row["go"], row["system"], ", ".join([setting, *kind]), *shown]


def _line(go: list[Row]) -> list[str]:
    theirs = [row for row in go if row["system"] != "paceline"]
    chosen = [row for row in go if row["system"] == "paceline" and row["mode"] != "fixed"]
    fixed = [row for row in go if row["system"] == "paceline" and row["mode"] == "fixed"]
    load = go[0]
    cells = [load["profile"] or "plain", str(load["out"]), str(load["concurrency"])]
    cells += [_shown(name, theirs, with_k=load["profile"] is not None) for name in FIGURES]
    for name in FIGURES:
        best = _shown(name, fixed)
        cells.append(_shown(name, chosen) + (f" ({best})" if best != NONE else ""))
    return cells + [_ratio(name, chosen, theirs) for name in SPEEDS]


def _best(name: str, rows: list[Row]) -> Row | None:
    """The row of the highest speed; the time of the prompts is that of the best whole load."""
    speed = name if name in SPEEDS else "whole_tok_s"
    return max((row for row in rows if row[speed] is not None), key=lambda row: float(row[speed]), default=None)


def _shown(name: str, rows: list[Row], with_k: bool = False) -> str:
    row = _best(name, rows)
    if row is None or row[name] is None:
        return NONE
    if name not in SPEEDS:
        return f"{row[name]:.3f}"
    return f"{row[name]:,} (K={row['k']})" if with_k and row["k"] is not None else f"{row[name]:,}"


def _ratio(name: str, ours: list[Row], theirs: list[Row]) -> str:
    mine, best = _best(name, ours), _best(name, theirs)
    if mine is None or best is None:
        return NONE
    ratio = mine[name] / best[name]
    return f"**{ratio:.2f}**" if ratio < 1 else f"{ratio:.2f}"


if __name__ == "__main__":
    sys.stdout.write(table(newest_rows()))
