"""A registry whose series get the name of the model when they are read: a gateway learns it from its targets."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.samples import Sample

UNKNOWN = "unknown"


class NamedRegistry(CollectorRegistry):
    """Series that were declared with an empty `model_name` have what `name` gives, and `unknown` while it is empty."""

    def __init__(self, name: Callable[[], str]) -> None:
        """`name` is asked at each reading."""
        super().__init__()
        self._name = name

    def collect(self) -> Iterable[Metric]:
        """Every metric, with its name filled in."""
        name = self._name() or UNKNOWN
        for family in super().collect():
            family.samples = [_named(sample, name) for sample in family.samples]
            yield family


def _named(sample: Sample, name: str) -> Sample:
    if sample.labels.get("model_name") != "":
        return sample
    return sample._replace(labels={**sample.labels, "model_name": name})
