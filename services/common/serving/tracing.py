"""Traces from client to round in W3C form; real with OpenTelemetry installed and an endpoint set, else a no-op.

Knows neither gRPC nor the engine: a trace travels as the text of `traceparent`, in call metadata from the client and in
Start.traceparent from gateway to target.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Thread
from typing import Any, Protocol

from services.common.metrics.version import VERSION

HEADER = "traceparent"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")
Value = str | int | float | bool | tuple[str, ...]
Attributes = Mapping[str, Value]
CLOSE_S = 3.0
"""Seconds that an end waits for a collector. One that is dead, or does not answer, would have all of a drain's."""
Event = tuple[str, int, Attributes]
"""Name, nanoseconds since the epoch, and what is known of it."""


class Span(Protocol):
    """A span that runs."""

    @property
    def traceparent(self) -> str:
        """For its children."""

    def end(self, attributes: Attributes, error: str = "") -> None:
        """Ends it, as failed by an error of ours where one is named."""


class Tracer(Protocol):
    """Makes spans; parents are traceparent texts, empty for none. Inactive: records nothing."""

    active: bool

    def begin(self, name: str, parent: str) -> Span:
        """The span of a call that is served, which ends later."""

    def record(
        self,
        name: str,
        parent: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        events: Iterable[Event] = (),
    ) -> str:
        """A span that has already happened, in nanoseconds since the epoch; gives the traceparent for its children."""

    def close(self) -> None:
        """Sends what is left."""


def valid(traceparent: str) -> str:
    """The traceparent, or nothing when it is not of W3C form; of a later version what ours has of it."""
    found = _FORM.fullmatch(traceparent)
    return f"00{found[1]}" if found and not (found[2] and traceparent.startswith("00")) else ""


def sampled(traceparent: str) -> bool:
    """Whether the caller that began the trace wants it kept."""
    return bool(traceparent) and bool(int(traceparent[-2:], 16) & 1)


def from_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The traceparent in the metadata of a call; empty when there is none or it is malformed."""
    for key, value in metadata or ():
        if key == HEADER and isinstance(value, str):
            return valid(value)
    return ""


def trace_of(traceparent: str) -> str:
    """The id of the trace; empty without one."""
    return traceparent.split("-")[1] if traceparent else ""


@dataclass(frozen=True, slots=True)
class NoSpan:
    """Hands its parent on."""

    traceparent: str

    def end(self, attributes: Attributes, error: str = "") -> None:
        """Nothing."""


class NoTracer:
    """Hands the caller's trace on and records nothing."""

    active = False

    def begin(self, name: str, parent: str) -> Span:
        """The parent."""
        return NoSpan(parent)

    def record(
        self,
        name: str,
        parent: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        events: Iterable[Event] = (),
    ) -> str:
        """Gives the parent."""
        return parent

    def close(self) -> None:
        """Nothing."""


class OtelSpan:
    """A span of OpenTelemetry."""

    def __init__(self, span: Any) -> None:
        self._span = span
        self.traceparent = _traceparent(span)

    def end(self, attributes: Attributes, error: str = "") -> None:
        """Ends it."""
        from opentelemetry.trace import StatusCode

        self._span.set_attributes(dict(attributes))
        if error:
            self._span.set_status(StatusCode.ERROR, error)
        self._span.end()


class OtelTracer:
    """Spans by OpenTelemetry."""

    active = True

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("paceline", VERSION)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, parent: str) -> Span:
        """A span of kind SERVER."""
        from opentelemetry.trace import SpanKind

        return OtelSpan(self._tracer.start_span(name, context=self._context(parent), kind=SpanKind.SERVER))

    def record(
        self,
        name: str,
        parent: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        events: Iterable[Event] = (),
    ) -> str:
        """A finished span."""
        span = self._tracer.start_span(
            name, context=self._context(parent), start_time=start_ns, attributes=dict(attributes or {})
        )
        for event, at_ns, facts in events:
            span.add_event(event, dict(facts), at_ns)
        span.end(end_time=end_ns)
        return _traceparent(span)

    def close(self) -> None:
        """Flushes the exporter, unless nobody takes what it has."""
        closed(self._provider.shutdown)

    def _context(self, parent: str) -> Any:
        from opentelemetry.context import Context

        return self._propagator.extract({HEADER: parent}) if parent else Context()


def _traceparent(span: Any) -> str:
    made = span.get_span_context()
    return f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags):02x}"


def tracer(service: str, environ: Mapping[str, str] | None = None, pair: str = "") -> Tracer:
    """The tracer of a process, which names its pair; exports over OTLP where `endpoint_of` names a place.

    Raises:
        RuntimeError: see there; traces are not lost silently.
    """
    endpoint = endpoint_of("TRACES", os.environ if environ is None else environ)
    if not endpoint:
        return NoTracer()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    return OtelTracer(provider(service, exporter, pair))


def provider(service: str, exporter: Any, pair: str = "") -> Any:
    """A provider that sends finished spans in batches to an exporter."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    made = TracerProvider(resource=resource(service, pair))
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def resource(service: str, pair: str = "") -> Any:
    """What all spans and metrics of a process say of it; the environment's word goes before ours."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    known = {"service.name": f"paceline-{service}", "service.version": VERSION, "service.namespace": "paceline"}
    if pair:
        known |= {"service.instance.id": pair, "paceline.pair": pair}
    stated = OTELResourceDetector().detect()
    return Resource.create(known).merge(stated)


def closed(shutdown: Callable[[], object]) -> None:
    """Waits at most `CLOSE_S` for an exporter to send what it has; what is left then is lost."""
    sending = Thread(target=shutdown, daemon=True)
    sending.start()
    sending.join(CLOSE_S)


def endpoint_of(signal: str, environ: Mapping[str, str]) -> str:
    """Where TRACES or METRICS go by OpenTelemetry's own variables; empty: nowhere.

    Raises:
        RuntimeError: they ask for what is not there: another exporter, another protocol, or packages not installed.
    """
    exporter = environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() or "otlp"
    endpoint = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "") or environ.get(ENDPOINT, "")
    if not endpoint or exporter == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    if exporter != "otlp":
        raise RuntimeError(f"OTEL_{signal}_EXPORTER is {exporter}, want otlp or none")
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environ.get(name, "").strip().lower():
            if protocol != "grpc":
                raise RuntimeError(f"{name} is {protocol}, want grpc and the collector's port for it, such as 4317")
            break
    required()
    return endpoint


def required() -> None:
    """Sees that what exports is there.

    Raises:
        RuntimeError: it is not.
    """
    if not _installed("opentelemetry.exporter.otlp.proto.grpc"):
        raise RuntimeError(f"{ENDPOINT} is set, but requirements/tracing.txt is not installed")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
