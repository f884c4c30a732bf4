"""The dashboards drawn from a Prometheus as Grafana shows them: one PNG a board."""

import math
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from PIL import Image

from deploy.grafana.panels import Board, Panel
from tests.deploy.full.prometheus import Prometheus
from tests.deploy.full.units import written

COLUMNS = 2
POINTS = 120
SHOWN = 7
"""Rows of a legend: those that were largest."""

PAGE, BOX, INK, FAINT = "#111217", "#181b1f", "#ccccdc", "#2c3235"
CURVES = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d", "#fade2a")
COLOURS = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c"}

Found = list[tuple[str, list[tuple[float, float]]]]
"""Legends with (seconds since the epoch, value)."""


def concrete(expression: str, window: str = "20s") -> str:
    """The expression as Grafana sends it with every variable at "all"."""
    return re.sub(r"\$(cluster|namespace|model|pair)\b", ".*", expression.replace("$__rate_interval", window))


def draw(
    board: Board, prometheus: Prometheus, since: float, folder: Path, until: float = 0.0, window: str = "20s"
) -> Path:
    """Draws every panel of a board between two times, the later one now if it is 0; returns the file."""
    mpl.use("Agg")
    until = until or time.time()
    rows = math.ceil(len(board.panels) / COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(14, 2.9 * rows), squeeze=False, facecolor=PAGE)
    for panel, place in zip(board.panels, axes.flat, strict=False):
        _panel(panel, prometheus, (since, until), window, place)
    for place in axes.flat[len(board.panels) :]:
        place.set_axis_off()
    figure.suptitle(board.title, color=INK, fontsize=14, x=0.02, ha="left")
    figure.tight_layout(rect=(0, 0, 1, 0.985), h_pad=2.0, w_pad=2.0)
    path = folder / f"{board.uid}.png"
    figure.savefig(path, dpi=75)
    plt.close(figure)
    with Image.open(path) as drawn:
        small = drawn.convert("RGB").quantize(128, kmeans=2)
    small.save(path, optimize=True)
    return path


def series(panel: Panel, prometheus: Prometheus, between: tuple[float, float], window: str) -> Found:
    """What a panel shows: of a ranked one the values at the end, in their order."""
    since, until = between
    if panel.ranked:
        return [
            (label(legend, one["metric"]), [(until, float(one["value"][1]))])
            for expression, legend in panel.expressions
            for one in prometheus.query(concrete(expression, window), until)
        ]
    return [
        (label(legend, one["metric"]), [(float(at), float(value)) for at, value in one["values"]])
        for expression, legend in panel.expressions
        for one in prometheus.range(concrete(expression, window), since, until, (until - since) / POINTS)
    ]


def label(legend: str, metric: dict[str, str]) -> str:
    """The legend as Grafana fills it in: a label that the series lacks is empty."""
    return re.sub(r"{{(\w+)}}", lambda name: Path(metric.get(name[1], "")).name, legend).strip()


def _panel(panel: Panel, prometheus: Prometheus, between: tuple[float, float], window: str, place: Axes) -> None:
    place.set_facecolor(BOX)
    place.set_title(panel.title, fontsize=10, color=INK, loc="left", weight="bold")
    place.tick_params(labelsize=7, colors=INK, length=0)
    for edge in place.spines.values():
        edge.set_color(FAINT)
    found = series(panel, prometheus, between, window)
    numbers = [(name, [(at, value) for at, value in points if not math.isnan(value)]) for name, points in found]
    if not any(points for _, points in numbers):
        place.set_xticks([])
        place.set_yticks([])
        place.text(0.5, 0.5, panel.empty, transform=place.transAxes, ha="center", color=INK, fontsize=12)
    elif panel.heatmap:
        _heatmap(panel, found, place)
    elif panel.single:
        _figures(panel, numbers, place)
    elif panel.ranked:
        _bars(panel, numbers, place)
    else:
        _curves(panel, numbers, place)


def _clock(place: Axes, moments: list[float]) -> None:
    marks = np.linspace(min(moments), max(moments), 5)
    place.set_xticks(marks, [time.strftime("%H:%M:%S", time.gmtime(at)) for at in marks])


def colour(panel: Panel, value: float) -> str:
    """The colour of a value, by the panel's steps."""
    passed = [colour for at, colour in panel.steps if value >= at]
    return COLOURS[passed[-1] if passed else panel.below]


def _curves(panel: Panel, found: Found, place: Axes) -> None:
    """Curves above a table of their mean, largest and latest values, the largest first."""
    found = sorted((each for each in found if each[1]), key=lambda each: -max(value for _, value in each[1]))
    moments = sorted({at for _, points in found for at, _ in points})
    step = min((after - before for before, after in pairwise(moments)), default=0.0)
    for number, (name, points) in enumerate(found):
        values = [value for _, value in points]
        told = ", ".join(f"{what} {written(panel.unit, value)}" for what, value in _sums(panel, values))
        shown = f"{name}  {told}" if number < SHOWN else "_"
        colour = CURVES[number % len(CURVES)]
        place.plot(*_broken(points, step), label=shown, linewidth=1.3, color=colour)
    _scale(panel, [value for _, points in found for _, value in points], place)
    for value, colour in panel.steps:
        if place.get_ylim()[0] <= value <= place.get_ylim()[1]:
            place.axhline(value, color=COLOURS[colour], linestyle="--", linewidth=1)
    place.grid(color=FAINT, linewidth=0.6)
    _clock(place, [at for _, points in found for at, _ in points])
    place.legend(
        fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.1), frameon=False, labelcolor=INK, ncols=1, borderpad=0
    )
    if len(found) > SHOWN:
        place.text(1, 1.03, f"{len(found) - SHOWN} more", transform=place.transAxes, ha="right", color=INK, fontsize=7)


def _broken(points: list[tuple[float, float]], step: float) -> tuple[list[float], list[float]]:
    """Moments and values of a curve that ends where its data do, as Grafana's: a line over a gap is no measurement."""
    drawn = points[:1]
    for before, after in pairwise(points):
        if after[0] - before[0] > 1.5 * step:
            drawn.append((before[0], math.nan))
        drawn.append(after)
    return [at for at, _ in drawn], [value for _, value in drawn]


def _sums(panel: Panel, values: list[float]) -> list[tuple[str, float]]:
    if panel.unit == "bool_yes_no":
        return [("last", values[-1])]
    return [("mean", sum(values) / len(values)), ("max", max(values)), ("last", values[-1])]


def _scale(panel: Panel, values: list[float], place: Axes) -> None:
    low = panel.least if panel.least is not None else min(values)
    most = 1.0 if panel.unit == "percentunit" and panel.most is None else panel.most
    high = most if most is not None else max([*values, low])
    room = (high - low) * 0.08 or 0.5
    place.set_ylim(low if panel.least is not None else low - room, high + room)
    marks = np.array([low, high]) if panel.unit == "bool_yes_no" else _round(low, high if high > low else low + 1)
    place.set_yticks(marks, [written(panel.unit, mark) for mark in marks])


def _round(low: float, high: float) -> Any:
    """Round numbers between two, as Grafana's axes have them."""
    marks = np.asarray(MaxNLocator(5).tick_values(low, high))
    return marks[(marks >= low) & (marks <= high)]


def _bars(panel: Panel, found: Found, place: Axes) -> None:
    """One bar a series, in their order, the first on top."""
    values = [points[-1][1] for _, points in found]
    places = np.arange(len(found))[::-1]
    most, colours = max(values) or 1.0, mpl.colormaps["RdYlGn_r"]
    place.barh(places, values, color=[colours(value / most) for value in values], height=0.6)
    place.set_yticks(places, [name for name, _ in found], fontsize=9)
    place.set_xticks([])
    place.set_xlim(0, most * 1.2)
    for at, value in zip(places, values, strict=True):
        place.text(value, at, f" {written(panel.unit, value)}", va="center", color=INK, fontsize=9)


def _figures(panel: Panel, found: Found, place: Axes) -> None:
    """The latest values, large."""
    place.set_xticks([])
    place.set_yticks([])
    for number, (name, points) in enumerate(found):
        value, across = points[-1][1], (number + 0.5) / len(found)
        place.text(
            across, 0.55, written(panel.unit, value), transform=place.transAxes, ha="center", va="center", fontsize=26,
            color=colour(panel, value),
        )  # fmt: skip
        place.text(across, 0.15, name, transform=place.transAxes, ha="center", color=INK, fontsize=9)


def _heatmap(panel: Panel, found: Found, place: Axes) -> None:
    """The values of each row; those of buckets are cumulated: each holds those below it."""
    rows = {name: dict(points) for name, points in found}
    names = sorted(rows, key=float)
    moments = sorted({at for values in rows.values() for at in values})
    table = np.array([[rows[name].get(at, 0.0) for at in moments] for name in names])
    within = np.diff(table, axis=0, prepend=0.0) if "+Inf" in names else table
    place.pcolormesh(moments, np.arange(len(names)), within, cmap="inferno", shading="nearest")
    place.set_yticks(np.arange(len(names)), [_bound(panel, name) for name in names], fontsize=6)
    _clock(place, moments)


def _bound(panel: Panel, name: str) -> str:
    return name if name == "+Inf" else written(panel.unit, float(name))
