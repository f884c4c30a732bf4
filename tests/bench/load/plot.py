"""Throughput against concurrency, one line a mode."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def plot_curve(rows: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draws the curve as PNG; False when matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name in dict.fromkeys(row["mode"] for row in rows):
        points = [(row["concurrency"], row["tok_s"]) for row in rows if row["mode"] == name]
        style = {"adaptive": "o-", "plain": "s--"}.get(name, "^:")
        axes.plot([x for x, _ in points], [y for _, y in points], style, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row["concurrency"] for row in rows}))
    axes.get_xaxis().set_major_formatter(mpl.ticker.ScalarFormatter())
    axes.set_xlabel("concurrent streams")
    axes.set_ylabel("tokens per second")
    axes.set_title("Decoding speed: plain, fixed widths and adaptive")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True
