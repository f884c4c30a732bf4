"""Traces from client to round in W3C form; real with OpenTelemetry installed and an endpoint set, else a no-op.

Knows neither gRPC nor the engine: a trace travels as the text of `traceparent`, in call metadata from the client and in
Start.traceparent from gateway to target.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

HEADER = "traceparent"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
Attributes = Mapping[str, str | int | float | bool]


class Tracer(Protocol):
    """Makes spans; a parent and what is yielded are traceparent texts, empty for none. Inactive: records nothing."""

    active: bool

    def span(self, name: str, parent: str = "", attributes: Attributes | None = None) -> AbstractContextManager[str]:
        """A span around a block; yields the traceparent for its children."""

    def record(self, name: str, parent: str, start_ns: int, end_ns: int, attributes: Attributes | None = None) -> str:
        """A span that has already happened, in nanoseconds since the epoch; gives the traceparent for its children."""

    def close(self) -> None:
        """Sends what is left."""


def valid(traceparent: str) -> str:
    """The traceparent, or nothing when it is not of W3C form."""
    return traceparent if _FORM.fullmatch(traceparent) else ""


def sampled(traceparent: str) -> bool:
    """Whether the caller that began the trace wants it kept."""
    return bool(traceparent) and bool(int(traceparent[-2:], 16) & 1)


def from_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The traceparent in the metadata of a call; empty when there is none or it is malformed."""
    for key, value in metadata or ():
        if key == HEADER and isinstance(value, str):
            return valid(value)
    return ""


class NoTracer:
    """Hands the caller's trace on and records nothing."""

    active = False

    @contextmanager
    def span(self, name: str, parent: str = "", attributes: Attributes | None = None) -> Iterator[str]:
        """Yields the parent."""
        yield parent

    def record(self, name: str, parent: str, start_ns: int, end_ns: int, attributes: Attributes | None = None) -> str:
        """Gives the parent."""
        return parent

    def close(self) -> None:
        """Nothing."""


class OtelTracer:
    """Spans by OpenTelemetry."""

    active = True

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("paceline")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(self, name: str, parent: str = "", attributes: Attributes | None = None) -> Iterator[str]:
        """A span that ends with the block; an exception marks it."""
        from opentelemetry.trace import use_span

        span = self._tracer.start_span(name, context=self._context(parent), attributes=dict(attributes or {}))
        with use_span(span, end_on_exit=True):
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            yield carrier.get(HEADER, "")

    def record(self, name: str, parent: str, start_ns: int, end_ns: int, attributes: Attributes | None = None) -> str:
        """A finished span."""
        span = self._tracer.start_span(
            name, context=self._context(parent), start_time=start_ns, attributes=dict(attributes or {})
        )
        span.end(end_time=end_ns)
        made = span.get_span_context()
        return f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags):02x}"

    def close(self) -> None:
        """Flushes the exporter."""
        self._provider.shutdown()

    def _context(self, parent: str) -> Any:
        return self._propagator.extract({HEADER: parent}) if parent else None


def tracer(service: str, environ: Mapping[str, str] | None = None) -> Tracer:
    """The tracer of a process: exports over OTLP when OTEL_EXPORTER_OTLP_ENDPOINT is set and the extra is installed.

    Raises:
        RuntimeError: the endpoint is set and requirements/tracing.txt is not installed; traces are not lost silently.
    """
    endpoint = (os.environ if environ is None else environ).get(ENDPOINT, "")
    if not endpoint:
        return NoTracer()
    if not _installed("opentelemetry.exporter.otlp.proto.grpc"):
        raise RuntimeError(f"{ENDPOINT} is set, but requirements/tracing.txt is not installed")
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    return OtelTracer(provider(service, exporter))


def provider(service: str, exporter: Any) -> Any:
    """A provider that sends finished spans in batches to an exporter."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    made = TracerProvider(resource=Resource.create({"service.name": f"paceline-{service}"}))
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
