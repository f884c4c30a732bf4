"""The dashboards' queries drawn from a live Prometheus: one PNG a board."""

import math
import re
import time
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from deploy.grafana.panels import Board, Panel
from tests.deploy.full.prometheus import Prometheus

COLUMNS = 2
POINTS = 120


def concrete(expression: str, window: str = "20s") -> str:
    """The expression as Grafana sends it with every variable at "all"."""
    return re.sub(r"\$(cluster|namespace|model|pair)\b", ".*", expression.replace("$__rate_interval", window))


def draw(board: Board, prometheus: Prometheus, since: float, folder: Path) -> Path:
    """Draws every panel of a board from a time until now; returns the file."""
    mpl.use("Agg")
    rows = math.ceil(len(board.panels) / COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(11, 2.4 * rows), squeeze=False)
    for panel, place in zip(board.panels, axes.flat, strict=False):
        _panel(panel, prometheus, since, place)
    for place in axes.flat[len(board.panels) :]:
        place.set_axis_off()
    figure.suptitle(board.title)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    path = folder / f"{board.uid}.png"
    figure.savefig(path, dpi=70)
    plt.close(figure)
    return path


def _panel(panel: Panel, prometheus: Prometheus, since: float, place: Axes) -> None:
    now = time.time()
    place.set_title(f"{panel.title} ({panel.unit})", fontsize=9)
    place.tick_params(labelsize=7)
    found = [
        (legend, series)
        for expression, legend in panel.expressions
        for series in prometheus.range(concrete(expression), since, now, (now - since) / POINTS)
    ]
    if panel.heatmap:
        rows = {label(legend, series["metric"]): dict(series["values"]) for legend, series in found}
        _heatmap(rows, any("le" in series["metric"] for _, series in found), since, place)
        return
    for legend, series in found:
        points = [(float(at) - since, float(value)) for at, value in series["values"]]
        place.plot(*zip(*points, strict=True), label=label(legend, series["metric"]), linewidth=1)
    if place.has_data():
        columns = 1 + len(found) // 6
        place.legend(fontsize=5 if columns > 1 else 6, loc="upper left", ncols=min(columns, 3))


def label(legend: str, metric: dict[str, str]) -> str:
    """The legend as Grafana fills it in: a label that the series lacks is empty."""
    return re.sub(r"{{(\w+)}}", lambda name: Path(metric.get(name[1], "")).name, legend).strip()


def _heatmap(rows: dict[str, dict[float, str]], cumulated: bool, since: float, place: Axes) -> None:
    """Draws the values of each row; those of buckets are `cumulated`: each holds those below it."""
    names = sorted(rows, key=float)
    moments = sorted({at for values in rows.values() for at in values})
    if not moments:
        return
    found = np.array([[float(rows[name].get(at, 0.0)) for at in moments] for name in names])
    within = np.diff(found, axis=0, prepend=0.0) if cumulated else found
    place.pcolormesh([at - since for at in moments], np.arange(len(names)), within, cmap="Oranges", shading="nearest")
    place.set_yticks(np.arange(len(names)), names, fontsize=5)
