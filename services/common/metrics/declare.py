"""Declares metrics once, as typed attributes, so that the services, the page of metrics and the dashboards agree."""

from collections.abc import Iterable
from typing import Any, Generic, Self, TypeAlias, TypeVar, cast, overload

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge

from services.common.metrics.histogram import Histogram

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each that counts


Metric: TypeAlias = Counter | Gauge | Histogram
M = TypeVar("M", bound=Metric)
Handle = TypeVar("Handle")
COMMON_LABELS = ("model_name", "pair")

# Seconds. Speculative rounds of fast models emit every millisecond, so the first bounds lie below one.
LATENCY = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LENGTH = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
"""Tokens."""

ROUND = (0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


LabelValue: TypeAlias = str | int | tuple[str, ...]


class ByLabel(dict[LabelValue, M]):
    """The series of one metric by the value of its label, or of both as a tuple; a new value starts a series at 0."""

    def __init__(self, parent: M, common: tuple[str, ...], values: Iterable[LabelValue]) -> None:
        """Begins the series of ``values``."""
        super().__init__()
        self._parent, self._common = parent, common
        for value in values:
            self[value]

    def __missing__(self, value: LabelValue) -> M:
        own = value if isinstance(value, tuple) else (value,)
        child = self[value] = cast(M, self._parent.labels(*self._common, *own))
        return child


class Declared(Generic[Handle]):
    """One metric of a set: what it counts, and its labels beside model_name and pair.

    An instance of the set holds its handle.

    ``values`` are the values of its label, or of both, whose series exist at 0 from the start, because rate() and
    increase() miss the first step of a series. Values that settings decide, such as widths, start when they are first
    counted.
    """

    def __init__(
        self,
        kind: type[Metric],
        meaning: str,
        labels: tuple[str, ...] = (),
        values: Iterable[LabelValue] = (),
        buckets: tuple[float, ...] = (),
    ) -> None:
        self.name = ""
        self.type, self.meaning, self.labels, self.values, self.buckets = kind, meaning, labels, tuple(values), buckets

    @property
    def kind(self) -> str:
        """counter, gauge or histogram."""
        return self.type.__name__.lower()

    @property
    def full_name(self) -> str:
        """The name as scraped, without the suffixes of the exposition format."""
        return f"paceline_{self.name}"

    def register(self, registry: CollectorRegistry) -> Metric:
        """The metric in the registry, which takes each once."""
        labels = (*COMMON_LABELS, *self.labels)
        buckets: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        return self.type(self.full_name, self.meaning, labels, registry=registry, **buckets)

    def bind(self, metric: Metric, common: tuple[str, ...]) -> Handle:
        """The metric of one model and pair."""
        return cast(Handle, ByLabel(metric, common, self.values) if self.labels else metric.labels(*common))

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Handle: ...
    def __get__(self, instance: object, owner: type) -> Self | Handle:
        if instance is None:
            return self
        raise AttributeError(self.name)  # an instance holds the handle as its own attribute


class MetricSet:
    """The metrics of one service or pair: each declared attribute is its metric with model_name and pair filled in."""

    def __init__(self, registered: dict[Declared[Any], Metric], model_name: str, pair: str) -> None:
        """Binds metrics that a registry has."""
        for declared, metric in registered.items():
            setattr(self, declared.name, declared.bind(metric, (model_name, pair)))

    @classmethod
    def declared(cls) -> tuple[Declared[Any], ...]:
        """What this set declares itself."""
        return tuple(one for one in vars(cls).values() if isinstance(one, Declared))

    @classmethod
    def register(cls, registry: CollectorRegistry) -> dict[Declared[Any], Metric]:
        """Puts every metric of this set and of those it extends into the registry."""
        sets = [one for one in cls.__mro__ if issubclass(one, MetricSet)]
        return {declared: declared.register(registry) for one in sets for declared in one.declared()}


Label: TypeAlias = str | tuple[str, str]


@overload
def counter(meaning: str) -> Declared[Counter]: ...
@overload
def counter(meaning: str, *, label: Label, values: Iterable[LabelValue] = ()) -> Declared[ByLabel[Counter]]: ...
def counter(meaning: str, *, label: Label = "", values: Iterable[LabelValue] = ()) -> Declared[Any]:
    """Declares a counter."""
    return Declared(Counter, meaning, _labels(label), values)


@overload
def gauge(meaning: str) -> Declared[Gauge]: ...
@overload
def gauge(meaning: str, *, label: str, values: Iterable[str] = ()) -> Declared[ByLabel[Gauge]]: ...
def gauge(meaning: str, *, label: str = "", values: Iterable[str] = ()) -> Declared[Any]:
    """Declares a gauge."""
    return Declared(Gauge, meaning, _labels(label), values)


@overload
def histogram(meaning: str, buckets: tuple[float, ...] = LATENCY) -> Declared[Histogram]: ...
@overload
def histogram(meaning: str, buckets: tuple[float, ...] = LATENCY, *, label: str) -> Declared[ByLabel[Histogram]]: ...
def histogram(meaning: str, buckets: tuple[float, ...] = LATENCY, *, label: str = "") -> Declared[Any]:
    """Declares a histogram, of seconds where its buckets are."""
    return Declared(Histogram, meaning, _labels(label), buckets=buckets)


def _labels(label: Label) -> tuple[str, ...]:
    if isinstance(label, tuple):
        return label
    return (label,) if label else ()
