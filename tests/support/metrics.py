"""Reads metrics in tests."""

from prometheus_client import Counter, Gauge


def value_of(metric: Counter | Gauge) -> float:
    """The present value of one series."""
    return float(metric._value.get())
