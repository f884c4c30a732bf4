"""Histograms by OpenTelemetry's conventions for servers of generative AI, over OTLP where an endpoint is set.

The page of metrics has the same under names of our own; these are for those who gather metrics with a collector.
"""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from services.common.metrics.version import VERSION
from services.common.serving.tracing import Attributes, closed, endpoint_of, resource

REQUEST, FIRST, EACH = "request.duration", "time_to_first_token", "time_per_output_token"
_BOUNDS = {
    REQUEST: (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    FIRST: (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    EACH: (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
}
"""Seconds, as the conventions have them."""
_MEANS = {
    REQUEST: "From the call to its end.",
    FIRST: "From the call to the first token.",
    EACH: "Time of a token after the first.",
}


class Measures(Protocol):
    """Takes seconds; `name` is one of those above."""

    def record(self, name: str, seconds: float, attributes: Attributes) -> None:
        """One observation."""

    def close(self) -> None:
        """Sends what is left."""


class NoMeasures:
    """Records nothing."""

    def record(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class OtelMeasures:
    """Histograms of OpenTelemetry, sent every minute or as OTEL_METRIC_EXPORT_INTERVAL says."""

    def __init__(self, reader: Any, service: str) -> None:
        from opentelemetry.sdk.metrics import MeterProvider

        self._provider = MeterProvider([reader], resource=resource(service), shutdown_on_exit=False)
        meter = self._provider.get_meter("paceline", VERSION)
        self._histograms = {
            name: meter.create_histogram(
                f"gen_ai.server.{name}", "s", _MEANS[name], explicit_bucket_boundaries_advisory=bounds
            )
            for name, bounds in _BOUNDS.items()
        }

    def record(self, name: str, seconds: float, attributes: Attributes) -> None:
        """One observation."""
        self._histograms[name].record(seconds, dict(attributes))

    def close(self) -> None:
        """Sends what is left, unless nobody takes it."""
        closed(self._provider.shutdown)


def measures(service: str, environ: Mapping[str, str] | None = None) -> Measures:
    """The histograms of a process; over OTLP where `endpoint_of` names a place.

    Raises:
        RuntimeError: see there.
    """
    endpoint = endpoint_of("METRICS", os.environ if environ is None else environ)
    if not endpoint:
        return NoMeasures()
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = OTLPMetricExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    return OtelMeasures(PeriodicExportingMetricReader(exporter), service)
