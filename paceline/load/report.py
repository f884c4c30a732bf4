"""Levels as a table and as a picture."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich import box
from rich.table import Table

from paceline.load.level import Level

COLUMNS = ("at once", "requests", "failed", "tok/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99")


def table(title: str, levels: Sequence[Level]) -> Table:
    """One row for each level; times in milliseconds."""
    note = "TTFT to the first tokens, ITL between tokens: milliseconds"
    found = Table(title=title, caption=note, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        found.add_column(name, justify="right")
    for level in levels:
        times = (level.ttft_p50_ms, level.ttft_p99_ms, level.itl_p50_ms, level.itl_p99_ms)
        counts = (level.concurrency, level.requests, level.failed)
        found.add_row(*map(str, counts), f"{level.tok_s:,.0f}", *(f"{one:,.1f}" for one in times))
    return found


def can_draw() -> bool:
    """Whether the library for pictures is installed."""
    return find_spec("matplotlib") is not None


def draw(title: str, levels: Sequence[Level], path: Path) -> None:
    """Writes a PNG of throughput and both times over the concurrency.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    figure.suptitle(title)
    at_once = [level.concurrency for level in levels]
    speed, first, gap = figure.subplots(1, 3)
    speed.plot(at_once, [level.tok_s for level in levels], marker="o")
    for axis, name in ((first, "ttft"), (gap, "itl")):
        for percent in ("p50", "p99"):
            axis.plot(at_once, [getattr(level, f"{name}_{percent}_ms") for level in levels], marker="o", label=percent)
        axis.legend()
    for axis, label in ((speed, "tokens per second"), (first, "TTFT, ms"), (gap, "ITL, ms")):
        axis.set(xlabel="requests at once", ylabel=label, ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.savefig(path, format="png", dpi=120)
