"""Figures of pages, out of saved results: `python -m tests.bench.pages` writes the tables and draws the plot.

A table stands between two comments that name it, so that a test can compare the page with the results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.bench import race

ROOT = Path(__file__).resolve().parents[2]
PLOT = ROOT / "docs/pictures/race.png"
STEPS = ("gpu_h200_steps_long_2026-11-23.json", "gpu_h200_steps_2026-11-23.json")
PROMPTS = "gpu_h200_prefill_2026-11-23.json"
CPU = "embedded_cpu_2026-11-21.json"
REAL_TEXT = "real_text_2026-11-29_cde018af.json"
HEADLINE_OUT = 512
"""Tokens of an answer in README's table; the others stand in docs/performance.md."""
_STEPS = ("plain", "verify", "draft", "sampled")
_WIDTHS = (1, 16)
_TICKS = (1_000, 2_000, 5_000, 10_000, 20_000)
Row = dict[str, Any]


def steps() -> str:
    """Single steps against their floor, the batches and contexts that were saved; each in one process, alone."""
    head = ("step", "sequences", "context", "us", "floor, us", "times its floor")
    cells: dict[tuple[int, int, int], tuple[str, ...]] = {}
    for row in (row for name in STEPS for row in _read(name)["rows"]):
        if row["step"] in _STEPS and row["width"] in _WIDTHS:
            key = row["context"], row["bucket"], _STEPS.index(row["step"])
            cells.setdefault(key, _step(row))
    for row in _read(PROMPTS)["rows"]:
        floor = row["products_us"] + row["attention_us"]
        cells[row["context"], 0, 0] = ("prompt", "1", f"{row['context']:,}", *_against(row["us"], floor))
    return _table(head, (cells[key] for key in sorted(cells)))


def served() -> str:
    """Every load of the newest race against vLLM."""
    return race.table(race.newest_rows())


def against_vllm() -> str:
    """The longer loads of the headline profile, whole and decoding, by requests."""
    head = ("requests", "vLLM: decode", "vLLM: whole", "paceline: decode", "paceline: whole", "ratios")
    lines = []
    for (out, requests), (theirs, ours) in _headline().items():
        if out != HEADLINE_OUT:
            continue
        figures = [f"{best[name]:,}" for best in (theirs, ours) for name in race.SPEEDS]
        ratios = (ours[name] / theirs[name] for name in race.SPEEDS)
        shown = "; ".join(f"**{ratio:.2f}**" if ratio < 1 else f"{ratio:.2f}" for ratio in ratios)
        lines.append((str(requests), *figures, shown))
    return _table(head, lines)


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
    "against vLLM": against_vllm,
    "real text": real_text,
}
PAGES = ("README.md", "docs/performance.md")


def filled(text: str) -> str:
    """The page with each of its tables as the results say."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n{TABLES[match[1]]()}<!-- end -->"

    return re.sub(r"<!-- table: ([\w ]+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def draw(path: Path) -> None:
    """Output tokens per second of whole loads by requests, beside vLLM; one panel for each length of output."""
    from matplotlib import pyplot

    loads = _headline()
    outs = sorted({out for out, _ in loads}, reverse=True)
    figure, panels = pyplot.subplots(
        1, len(outs), figsize=(9, 3.4), layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    counts = sorted({count for _, count in loads})
    for panel, out in zip(panels[0], outs, strict=True):
        requests = [count for length, count in loads if length == out]
        for side, label, style in ((0, "vLLM, its best K", "o--"), (1, "paceline", "o-")):
            panel.plot(requests, [loads[out, count][side]["whole_tok_s"] for count in requests], style, label=label)
        panel.set(xscale="log", yscale="log", title=f"{out} tokens out", xlabel="requests at once")
        panel.minorticks_off()
        panel.set_xticks(counts, [str(count) for count in counts])
        panel.set_yticks(_TICKS, [f"{tick:,}" for tick in _TICKS])
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("output tokens per second, prompts counted")
    panels[0][0].legend(frameon=False)
    figure.savefig(
        path, dpi=110, metadata={"Description": " ".join(file.name for file in race.newest()), "Software": ""}
    )


def main() -> int:
    """Writes all pages and the plot."""
    for name in PAGES:
        page = ROOT / name
        page.write_text(filled(page.read_text()))
    draw(PLOT)
    return 0


def _headline() -> dict[tuple[int, int], tuple[Row, Row]]:
    """(out, requests) -> the best of vLLM and what paceline chose, where both were measured whole."""
    found: dict[tuple[int, int], tuple[Row, Row]] = {}
    rows = [row for row in race.newest_rows() if row["profile"] == "P65"]
    for load in dict.fromkeys((row["out"], row["concurrency"]) for row in rows):
        there = [row for row in rows if (row["out"], row["concurrency"]) == load]
        theirs = _best([row for row in there if row["system"] != "paceline"])
        ours = _best([row for row in there if row["system"] == "paceline" and row["mode"] == "adaptive"])
        if None not in (*theirs.values(), *ours.values()):
            found[load] = theirs, ours
    return found


def _best(rows: list[Row]) -> Row:
    """The highest of each speed, as the race's table has it."""
    return {name: max((row[name] for row in rows if row[name] is not None), default=None) for name in race.SPEEDS}


def _read(name: str) -> Row:
    found: Row = json.loads((race.RESULTS / name).read_text())
    return found


def _step(row: Row) -> tuple[str, ...]:
    rows = "" if row["step"] == "plain" else f" of {row['width']} rows"
    where = (f"{row['step']}{rows}", str(row["bucket"]), f"{row['context']:,}")
    if row["step"] == "sampled":  # its yardstick is the greedy step of the same run
        return (*where, f"{row['us']:,.0f}", race.NONE, f"{row['ratio']:.2f} times greedy")
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
