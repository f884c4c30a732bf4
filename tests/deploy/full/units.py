"""Numbers with the units of panels, as Grafana writes them."""

import math
from collections.abc import Callable

_RATES = {"tps": " t/s", "reqps": " req/s", "ops": " ops/s"}
_SMALL = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LONG = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "min"))


def written(unit: str, value: float) -> str:
    """A value in its unit, by three digits."""
    if math.isinf(value):
        return "+Inf"
    if unit.startswith("suffix:"):
        return f"{_plain(value)}{unit.removeprefix('suffix:')}"
    return _WRITTEN.get(unit, _plain)(value) + _RATES.get(unit, "")


def _plain(value: float) -> str:
    for size, name in ((1e9, " Bil"), (1e6, " Mil"), (1e3, " K")):
        if abs(value) >= size:
            return f"{_short(value / size)}{name}"
    return _short(value)


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _seconds(value: float) -> str:
    for size, name in _LONG:
        if abs(value) >= size:
            return f"{_short(value / size)} {name}"
    for size, name in _SMALL:
        if abs(value) >= size:
            return f"{_short(value / size)} {name}"
    return f"{_short(value)} s"


def _bytes(value: float) -> str:
    for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(value) >= size:
            return f"{_short(value / size)} {name}"
    return f"{_short(value)} B"


_WRITTEN: dict[str, Callable[[float], str]] = {
    "s": _seconds,
    "bytes": _bytes,
    "decmbytes": lambda value: f"{_short(value)} MB",
    "percentunit": lambda value: f"{_short(100 * value)}%",
    "percent": lambda value: f"{_short(value)}%",
    "bool_yes_no": lambda value: "Yes" if value else "No",
}
