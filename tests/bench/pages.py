"""Figures of pages, out of saved results: `python -m tests.bench.pages` writes the tables and draws the plot.

A table stands between two comments that name it, so that a test can compare the page with the results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench import race
from tests.bench.gpu.fronts.rows import table as fronts_table

ROOT = Path(__file__).resolve().parents[2]
PLOT = ROOT / "docs/pictures/race.png"
STEPS = "gpu_h200_steps_2026-11-23.json"
CPU = "embedded_cpu_2026-11-21.json"
REAL_TEXT = "real_text_2026-11-29_cde018af.json"
LONG_OUT = 512
"""Tokens of an answer in the tables of pages."""
_STEPS = ("plain", "verify", "draft")
_MIDDLE = 4096
"""A context whose steps lie between those of the shorter and the longer one; the log has them."""
_WIDTHS = (1, 16)
_TICKS = (1_000, 2_000, 5_000, 10_000, 20_000)
_TICKS_MS = (10, 20, 50, 100, 200, 500)
_TIMES = (("first_ms", "p50"), ("gaps_ms", "p99"))
Row = dict[str, Any]


def steps() -> str:
    """Single steps against their floor, the batches and contexts that were saved; each in one process, alone."""
    head = ("step", "sequences", "context", "us", "floor, us", "times its floor")
    cells: dict[tuple[int, int, int], tuple[str, ...]] = {}
    saved = _read(STEPS)
    for row in (*saved["long contexts"]["rows"], *saved["others"]["rows"]):
        if row["step"] in _STEPS and row["width"] in _WIDTHS and row["context"] != _MIDDLE:
            key = row["context"], row["bucket"], _STEPS.index(row["step"])
            cells.setdefault(key, _step(row))
    for row in saved["prompts"]["rows"]:
        floor = row["products_us"] + row["attention_us"]
        cells[row["context"], 0, 0] = ("prompt", "1", f"{row['context']:,}", *_against(row["us"], floor))
    return _table(head, (cells[key] for key in sorted(cells)))


def served() -> str:
    """Loads of long answers of the newest race against vLLM."""
    return race.table(row for row in race.newest_rows() if row["out"] == LONG_OUT)


def over_http() -> str:
    """Loads that start at once, through both products' HTTP fronts: vLLM has its best K of each load."""
    head = ("requests", "vLLM", "paceline", "ratio", "first token, ms", "gaps p99, ms")
    lines = []
    for load, (theirs, ours) in _fronts().items():
        speeds = f"{theirs['tok_s']:,} ({theirs['system'].split()[1]})", f"{ours['tok_s']:,}"
        ratio = ours["tok_s"] / theirs["tok_s"]
        times = [f"{theirs[name][part]:,.0f}; {ours[name][part]:,.0f}" for name, part in _TIMES]
        lines.append(
            (load.removesuffix(" at once"), *speeds, f"**{ratio:.2f}**" if ratio < 1 else f"{ratio:.2f}", *times)
        )
    return _table(head, lines)


def every_load() -> str:
    """Every load of the race through HTTP: paceline, and vLLM at the K that was best in it."""
    return fronts_table([row for pair in _fronts("").values() for row in reversed(pair)])


def real_text() -> str:
    """Tokens a second of real answers by requests, beside the best of vLLM's numbers of drafts."""
    rows = _read(REAL_TEXT)["rows"]
    lines = []
    for ours in (row for row in rows if row["system"] == "paceline"):
        load = ours["streams"], ours["temperature"]
        there = [row for row in rows if row["system"] == "vllm" and (row["streams"], row["temperature"]) == load]
        theirs = max(there, key=lambda row: float(row["tokens_per_s"]))
        speeds = [f"{row['tokens_per_s']:,.0f}" for row in (theirs, ours)]
        ratio = ours["tokens_per_s"] / theirs["tokens_per_s"]
        lines.append((str(ours["streams"]), f"{speeds[0]} (K={theirs['k']})", speeds[1], f"{ratio:.2f}"))
    return _table(("requests", "vLLM", "paceline", "ratio"), lines)


def cpu() -> str:
    """The embedded pair on two cores."""
    result = _read(CPU)
    head = ("figure", "greedy", "T = 0.8")
    tau = {(row["proposer"], row["temperature"]): str(row["tau"]) for row in result["acceptance"]}
    speed = {(row["what"], row["temperature"]): _spread(row) for row in result["speed"]}
    names = {"dflash": "tokens a round, DFlash", "ngram": "tokens a round, n-gram"}
    lines = [(label, tau[name, 0.0], tau[name, 0.8]) for name, label in names.items()]
    lines += [
        (f"{what}, speed", speed.get((what, 0.0), race.NONE), speed.get((what, 0.8), race.NONE))
        for what in dict.fromkeys(row["what"] for row in result["speed"])
    ]
    return _table(head, lines)


TABLES: dict[str, Callable[[], str]] = {
    "steps": steps,
    "served": served,
    "cpu": cpu,
    "over HTTP": over_http,
    "every load over HTTP": every_load,
    "real text": real_text,
}
PAGES = ("README.md", "docs/performance.md")


def filled(text: str) -> str:
    """The page with each of its tables as the results say."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n{TABLES[match[1]]()}<!-- end -->"

    return re.sub(r"<!-- table: ([\w ]+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def draw(path: Path) -> None:
    """Output tokens per second and times to the first token by requests, through HTTP, beside vLLM."""
    from matplotlib import pyplot

    loads = {int(load.split()[0]): pair for load, pair in _fronts().items()}
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharex=True)
    shown: tuple[tuple[str, Callable[[Row], float], Sequence[int]], ...] = (
        ("output tokens per second", lambda row: float(row["tok_s"]), _TICKS),
        ("median time to the first token, ms", lambda row: float(row["first_ms"]["p50"]), _TICKS_MS),
    )
    for panel, (label, figure_of, ticks) in zip(panels, shown, strict=True):
        for side, name, style in ((0, "vLLM, its best K", "o--"), (1, "paceline", "o-")):
            panel.plot(list(loads), [figure_of(pair[side]) for pair in loads.values()], style, label=name)
        panel.set(xscale="log", yscale="log", ylabel=label, xlabel="requests at once")
        panel.minorticks_off()
        panel.set_xticks(list(loads), [str(count) for count in loads])
        panel.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Description": fronts_file().name, "Software": ""})


def main() -> int:
    """Writes all pages and the plot."""
    for name in PAGES:
        page = ROOT / name
        page.write_text(filled(page.read_text()))
    draw(PLOT)
    return 0


def fronts_file() -> Path:
    """The newest race through HTTP."""
    return max(race.RESULTS.glob("fronts_*.json"), key=lambda file: file.name)


def _fronts(kind: str = " at once") -> dict[str, tuple[Row, Row]]:
    """Of each load, or those whose names end so, the row of vLLM's best K, and paceline's."""
    rows = [row for row in json.loads(fronts_file().read_text())["rows"] if row["load"].endswith(kind)]
    found = {}
    for load in dict.fromkeys(row["load"] for row in rows):
        there = [row for row in rows if row["load"] == load]
        theirs = max((row for row in there if row["system"] != "paceline"), key=lambda row: int(row["tok_s"]))
        found[load] = theirs, next(row for row in there if row["system"] == "paceline")
    return found


def _read(name: str) -> Row:
    found: Row = json.loads((race.RESULTS / name).read_text())
    return found


def _step(row: Row) -> tuple[str, ...]:
    rows = "" if row["step"] == "plain" else f" of {row['width']} rows"
    where = (f"{row['step']}{rows}", str(row["bucket"]), f"{row['context']:,}")
    return (*where, *_against(row["us"], row["floor_us"]))


def _against(micros: float, floor: float) -> tuple[str, str, str]:
    return f"{micros:,.0f}", f"{floor:,.0f}", f"{micros / floor:.2f}"


def _spread(row: Row) -> str:
    return f"{row['median']:.2f} times ({row['least']:.2f}-{row['most']:.2f})"


def _table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = list(head)
    whole = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in whole)


if __name__ == "__main__":
    sys.exit(main())
