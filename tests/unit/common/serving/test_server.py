"""The edge of every service, over real gRPC: statuses (I8), health, reflection, metrics."""

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry, Counter

from services.common.pb.paceline.v1 import fleet_pb2
from services.common.request.error_convert import from_status
from services.common.request.errors import Code, PacelineError, Reason, overloaded
from services.common.serving.channel import connect
from services.common.serving.server import LIVENESS, BindError, Bound, Listeners, Server
from tests.unit.common.serving.fleet import SERVICE, Behaviour, echo, server, watch

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as page:
        return bytes(page.read())


async def health(address: str, name: str) -> int:
    async with connect(address) as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        return int((await health_pb2_grpc.HealthStub(channel).Check(request, timeout=30)).status)


async def failure(behaviour: Behaviour) -> tuple[grpc.aio.AioRpcError, PacelineError]:
    """What a client gets from a behaviour that fails."""
    made = server(behaviour)
    bound = await made.start()
    try:
        async with connect(bound.grpc) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await watch(channel)
    finally:
        await made.stop(0)
    status: Any = rpc_status.from_call(raised.value)
    return raised.value, from_status(status)


async def test_a_typed_error_arrives_whole() -> None:
    async def refuse(request: fleet_pb2.WatchRequest, context: Any) -> fleet_pb2.WatchResponse:
        raise overloaded("wait", 2.5)

    raw, error = await failure(refuse)
    assert raw.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert vars(error) == vars(overloaded("wait", 2.5))


async def test_a_defect_is_internal_and_tells_nothing() -> None:
    async def break_down(request: fleet_pb2.WatchRequest, context: Any) -> fleet_pb2.WatchResponse:
        raise ValueError("secret path /etc/x")

    raw, error = await failure(break_down)
    assert raw.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(raw.details())
    assert error.reason is Reason.INTERNAL


async def test_an_abort_of_the_handler_is_kept() -> None:
    async def abort(request: fleet_pb2.WatchRequest, context: Any) -> fleet_pb2.WatchResponse:
        await context.abort(grpc.StatusCode.NOT_FOUND, "none")
        raise AssertionError("abort returns")

    made = server(abort)
    bound = await made.start()
    async with connect(bound.grpc) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await watch(channel)
    await made.stop(0)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x05abc", b"\x08"], ids=["tag", "cut", "varint"])
async def test_malformed_bytes_are_the_clients_fault(data: bytes) -> None:
    made = server()
    bound = await made.start()
    async with connect(bound.grpc) as channel:
        method: Any = channel.unary_stream(f"/{SERVICE}/Watch")
        call = method(data, timeout=30)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await anext(aiter(call))
    await made.stop(0)
    status: Any = rpc_status.from_call(raised.value)
    assert (from_status(status).code, from_status(status).reason) == (Code.INVALID_ARGUMENT, Reason.MALFORMED)


async def test_health_follows_readiness_on_both_listeners() -> None:
    made = server()
    bound = await made.start()
    for address in (bound.grpc, bound.health):
        assert [await health(address, name) for name in ("", SERVICE, LIVENESS)] == [NOT_SERVING, NOT_SERVING, SERVING]
    await made.set_serving(True)
    assert [await health(bound.health, name) for name in ("", SERVICE)] == [SERVING, SERVING]
    await made.set_live(False)
    assert await health(bound.health, LIVENESS) == NOT_SERVING
    await made.stop(0)


async def test_metrics_are_scraped_over_http() -> None:
    registry = CollectorRegistry()
    Counter("paceline_example", "An example.", registry=registry).inc(3)
    made = server(metrics=registry)
    bound = await made.start()
    page = await asyncio.to_thread(read, f"http://{bound.metrics}/metrics")
    assert b"paceline_example_total 3.0" in page
    await made.stop(0)


async def test_reflection_lists_the_service() -> None:
    made = server()
    bound = await made.start()
    async with connect(bound.grpc) as channel:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        answer = await stub.ServerReflectionInfo(iter([request]), timeout=30).read()
    await made.stop(0)
    assert SERVICE in {service.name for service in answer.list_services_response.service}


async def test_a_unix_socket(tmp_path: Path) -> None:
    made = server(listeners=Listeners(grpc=f"unix:{tmp_path}/s"))
    bound = await made.start()
    async with connect(bound.grpc) as channel:
        assert await watch(channel, 7) == 7
    await made.stop(0)


async def bound_twice(kind: str) -> Server:
    """A server that wants an address that is taken."""
    taken: Bound = await (first := server()).start()
    try:
        second = server(echo, Listeners(**{kind: getattr(taken, kind)}))
        with pytest.raises(BindError):
            await second.start()
        await second.stop(0)
    finally:
        await first.stop(0)
    return second


@pytest.mark.parametrize("kind", ["grpc", "health", "metrics"])
async def test_a_taken_address_is_told(kind: str) -> None:
    await bound_twice(kind)


async def test_stop_can_be_called_twice() -> None:
    made = server()
    await made.start()
    await made.stop(0)
    await made.stop(0)


async def test_a_client_that_pings_every_second_is_kept() -> None:
    async def ponder(request: fleet_pb2.WatchRequest, context: Any) -> fleet_pb2.WatchResponse:
        await asyncio.sleep(4.5)
        return await echo(request, context)

    made = server(ponder)
    bound = await made.start()
    eager = [("grpc.keepalive_time_ms", 1000), ("grpc.http2.max_pings_without_data", 0)]
    async with connect(bound.grpc, options=eager) as channel:
        assert await watch(channel, 3) == 3
    await made.stop(0)
