"""The list of pairs and its service on the wire."""

import asyncio
from typing import Any, cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from deploy.cluster.fleet_service import PROTOCOL_VERSION, FleetService
from deploy.cluster.registry import PairEntry, Registry
from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc
from services.common.serving.server import Listeners, Server

ONE = PairEntry("pair-0", "127.0.0.1:1", "m", "ready")
TWO = PairEntry("pair-1", "127.0.0.1:2", "m", "starting")


async def test_a_watcher_gets_the_list_at_once_and_every_change() -> None:
    registry = Registry()
    await registry.publish([ONE])
    watch = registry.watch()
    assert (await anext(watch)).pairs == (ONE,)
    await registry.publish([ONE, TWO])
    assert (await anext(watch)).pairs == (ONE, TWO)


async def test_an_equal_list_is_no_change() -> None:
    registry = Registry()
    await registry.publish([ONE])
    await registry.publish([ONE])
    assert registry.snapshot.version == 1


async def test_slow_watchers_see_the_latest_list() -> None:
    registry = Registry()
    watch = registry.watch()
    await anext(watch)
    for count in range(1, 6):
        await registry.publish([ONE] * count)
    assert len((await anext(watch)).pairs) == 5


async def test_the_service_streams_the_list_and_refuses_another_version() -> None:
    registry = Registry()
    await registry.publish([ONE])
    server = Server(
        "cluster",
        Listeners(),
        lambda s: fleet_pb2_grpc.add_FleetServiceServicer_to_server(FleetService(registry), s),
        ("paceline.v1.FleetService",),
        CollectorRegistry(),
    )
    bound = await server.start()
    async with grpc.aio.insecure_channel(bound.grpc) as channel:
        stub = cast("fleet_pb2_grpc.FleetServiceAsyncStub", fleet_pb2_grpc.FleetServiceStub(channel))
        call = stub.Watch(fleet_pb2.WatchRequest(protocol_version=PROTOCOL_VERSION), timeout=30)
        first: Any = await call.read()
        assert [p.pair_id for p in first.pairs] == ["pair-0"]
        assert first.pairs[0].state == fleet_pb2.PAIR_STATE_READY
        await registry.publish([ONE, TWO])
        second: Any = await call.read()
        assert len(second.pairs) == 2
        call.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Watch(fleet_pb2.WatchRequest(protocol_version=99), timeout=30).read()
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    await asyncio.wait_for(server.stop(0), 30)
