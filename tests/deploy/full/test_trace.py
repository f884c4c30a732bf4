"""One trace from a client over the gateway's process to the rounds in the target's, at a collector."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.common.serving.tracing import ENDPOINT
from tests.deploy.full.load import clients
from tests.deploy.full.release import running

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
QUIET = "4bf92f3577b34da6a3ce929d0e0e4736"
TOKENS = 24
EXPORTED_S = 90.0


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans it is sent, with the name of the service that sent them."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Takes a batch."""
        for group in request.resource_spans:
            service = next(each.value.string_value for each in group.resource.attributes if each.key == "service.name")
            self.spans += [(service, span) for scope in group.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def roots(self, trace: str) -> list[tuple[str, Span]]:
        """Spans of calls that are served, of a trace."""
        kept = [*self.spans]
        return [
            (name, span) for name, span in kept if span.kind == Span.SPAN_KIND_SERVER and span.trace_id.hex() == trace
        ]

    def named(self, name: str) -> list[tuple[str, Span]]:
        """Spans of a name."""
        return [(service, span) for service, span in self.spans if span.name == f"paceline.{name}"]


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A collector and its endpoint."""
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield collector, f"http://127.0.0.1:{port}"
    server.stop(0)


async def generate(addresses: list[str], trace: str, flags: str) -> inference_pb2.Final:
    """One answer under a trace of the client's; flags 01 ask for it to be kept."""
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text="def add(a, b):\n"),
        stopping=types_pb2.Stopping(max_tokens=TOKENS, ignore_eos=True),
    )
    async with clients(addresses) as stub:
        call = stub.Generate(request, timeout=60, metadata=(("traceparent", f"00-{trace}-{CLIENT}-{flags}"),))
        finals = [message.final async for message in call if message.HasField("final")]
    return finals[0]


@pytest.fixture(scope="module")
def traced() -> tuple[Collector, inference_pb2.Final]:
    """What is collected of a request that wants no trace and of one that wants it, and the answer of the latter."""
    with collecting() as (collector, endpoint), running(1, 1, {ENDPOINT: endpoint}) as release:
        asyncio.run(generate(release.addresses("gateway", 0), QUIET, "00"))
        final = asyncio.run(generate(release.addresses("gateway", 0), TRACE, "01"))
        end = time.monotonic() + EXPORTED_S
        while not (collector.roots(TRACE) and collector.named("decode")) and time.monotonic() < end:
            time.sleep(0.2)
    return collector, final


def test_a_trace_holds_every_step_of_a_request(traced: tuple[Collector, inference_pb2.Final]) -> None:
    collector, final = traced
    ((gateway, root),) = collector.roots(TRACE)
    assert gateway == "paceline-gateway"
    assert (root.name, root.kind) == ("paceline.v1.InferenceService/Generate", Span.SPAN_KIND_SERVER)
    assert root.parent_span_id.hex() == CLIENT
    for name in ("queue", "prefill", "decode"):
        ((target, span),) = collector.named(name)
        assert target == "paceline-target"
        assert span.parent_span_id == root.span_id
    ((_, decode),) = collector.named("decode")
    # The round that ends the prefill gives the first token and verifies nothing.
    assert [event.name for event in decode.events] == ["paceline.round"] * (final.speculation.rounds + 1)
    assert not collector.named("round")
    assert {span.trace_id.hex() for _, span in collector.spans} == {TRACE}


def test_a_client_that_wants_no_trace_gets_none(traced: tuple[Collector, inference_pb2.Final]) -> None:
    collector, _ = traced
    assert collector.spans
    assert not [name for name, span in collector.spans if span.trace_id.hex() == QUIET]
