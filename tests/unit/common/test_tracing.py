"""One trace from client to round, and nothing without OpenTelemetry's endpoint."""

import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from services.common import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


def test_without_an_endpoint_the_callers_trace_is_handed_on() -> None:
    tracer = tracing.tracer("gateway", {})
    with tracer.span("generate", PARENT) as traceparent:
        assert traceparent == PARENT
    tracer.record("round", PARENT, 0, 1)
    tracer.close()


def test_an_endpoint_without_the_extra_is_refused() -> None:
    with pytest.raises(RuntimeError, match="tracing"):
        tracing.tracer("gateway", {tracing.ENDPOINT: "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    "text",
    ["", "00", PARENT[:-1], PARENT.upper(), "00-" + "0" * 32 + "-b7ad6b7169203331-01", PARENT + "-00", "x" * 999],
)
def test_a_malformed_traceparent_is_dropped(text: str) -> None:
    assert tracing.valid(text) == ""
    assert tracing.from_metadata([("traceparent", text)]) == ""


def test_a_traceparent_is_found_in_metadata() -> None:
    assert tracing.from_metadata([("a", b"b"), ("traceparent", PARENT)]) == PARENT
    assert tracing.from_metadata(None) == ""


def test_spans_of_two_processes_and_a_finished_round_make_one_trace() -> None:
    kept = Kept()
    gateway = tracing.OtelTracer(tracing.provider("gateway", lambda: kept))
    target = tracing.OtelTracer(tracing.provider("target", lambda: kept))
    with gateway.span("generate", PARENT, {"tokens": 3}) as start:
        assert tracing.valid(start)
        now = time.time_ns()
        target.record("round", start, now, now + 1_000_000, {"width": 8})
    gateway.close()
    target.close()
    spans = {span.name: span for span in kept.spans}
    assert {span.context.trace_id for span in kept.spans if span.context} == {0x0AF7651916CD43DD8448EB211C80319C}
    assert spans["round"].parent is not None
    assert spans["generate"].context is not None
    assert spans["round"].parent.span_id == spans["generate"].context.span_id
    assert dict(spans["round"].attributes or {}) == {"width": 8}
    assert (spans["round"].end_time or 0) - (spans["round"].start_time or 0) == 1_000_000


def test_an_exception_marks_its_span_and_goes_on() -> None:
    kept = Kept()
    tracer = tracing.OtelTracer(tracing.provider("gateway", lambda: kept))

    def fail() -> None:
        with tracer.span("generate"):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    tracer.close()
    assert not kept.spans[0].status.is_ok
