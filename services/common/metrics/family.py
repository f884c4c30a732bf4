"""Declares metrics once, so that the services, the page of metrics and the dashboards agree."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Kind = Literal["counter", "gauge", "histogram"]
Metric: TypeAlias = Counter | Gauge | Histogram
COMMON_LABELS = ("model_name", "pair")

# Seconds. Speculative rounds of fast models emit every millisecond, so the first bounds lie below one.
LATENCY = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROUND = (0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


@dataclass(frozen=True)
class Spec:
    """One metric: what it is called, what it counts, and the labels beside model_name and pair.

    values are those of its one label that exist from the start, at 0, because rate() and increase() do not see the step
    with which a series begins. Values that settings decide, such as widths, begin when they are first counted.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = LATENCY
    values: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as scraped, without the suffixes of the exposition format."""
        return f"paceline_{self.name}"


class Bound:
    """One metric with model_name and pair filled in."""

    def __init__(self, metric: Metric, common: tuple[str, ...], spec: Spec) -> None:
        self._metric = metric
        self._common = common
        self._children: dict[tuple[str, ...], Metric] = {}
        for labels in [(value,) for value in spec.values] if spec.labels else [()]:
            self._child(labels)

    def _child(self, labels: tuple[str, ...]) -> Metric:
        if labels not in self._children:
            self._children[labels] = self._metric.labels(*self._common, *labels)
        return self._children[labels]

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Adds to a counter or gauge."""
        child = self._child(labels)
        if isinstance(child, Histogram):
            raise TypeError("a histogram is observed")
        child.inc(by)

    def set(self, value: float, *labels: str) -> None:
        """Sets a gauge."""
        child = self._child(labels)
        if not isinstance(child, Gauge):
            raise TypeError("only a gauge is set")
        child.set(value)

    def observe(self, value: float, *labels: str) -> None:
        """Observes a value in a histogram, in seconds unless its name says otherwise."""
        child = self._child(labels)
        if not isinstance(child, Histogram):
            raise TypeError("only a histogram is observed")
        child.observe(value)

    def value(self, *labels: str) -> float:
        """The present value of a counter or gauge; for tests and reports."""
        child = self._child(labels)
        if isinstance(child, Histogram):
            raise TypeError("a histogram has no single value")
        return float(child._value.get())


class Family:
    """Declared metrics of one service or pair, by name: family["rounds"]."""

    def __init__(self, declared: Mapping[Spec, Metric], model_name: str, pair: str) -> None:
        self._metrics = {spec.name: Bound(metric, (model_name, pair), spec) for spec, metric in declared.items()}

    def __getitem__(self, name: str) -> Bound:
        return self._metrics[name]


def declare(specs: Iterable[Spec], registry: CollectorRegistry) -> dict[Spec, Metric]:
    """The metrics in the registry, which takes each once."""
    return {spec: _declare(spec, registry) for spec in specs}


def _declare(spec: Spec, registry: CollectorRegistry) -> Metric:
    labels = (*COMMON_LABELS, *spec.labels)
    if spec.kind == "counter":
        return Counter(spec.full_name, spec.help, labels, registry=registry)
    if spec.kind == "gauge":
        return Gauge(spec.full_name, spec.help, labels, registry=registry)
    return Histogram(spec.full_name, spec.help, labels, buckets=spec.buckets, registry=registry)
