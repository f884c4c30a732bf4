"""The dashboards' queries drawn from a live Prometheus: one PNG a board."""

import math
import re
import time
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
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
    figure.tight_layout()
    path = folder / f"{board.uid}.png"
    figure.savefig(path, dpi=70)
    plt.close(figure)
    return path


def _panel(panel: Panel, prometheus: Prometheus, since: float, place: Axes) -> None:
    now = time.time()
    place.set_title(f"{panel.title} ({panel.unit})", fontsize=9)
    place.tick_params(labelsize=7)
    for expression, legend in panel.expressions:
        for series in prometheus.range(concrete(expression), since, now, (now - since) / POINTS):
            label = legend
            for name, value in series["metric"].items():
                label = label.replace(f"{{{{{name}}}}}", Path(value).name)
            points = [(float(at) - since, float(value)) for at, value in series["values"]]
            place.plot(*zip(*points, strict=True), label=label, linewidth=1)
    if place.has_data():
        place.legend(fontsize=6, loc="upper left")
