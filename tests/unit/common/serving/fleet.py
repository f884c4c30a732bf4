"""A FleetService whose behaviour a test chooses; the smallest service of the contract."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import grpc
from prometheus_client import CollectorRegistry

from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc
from services.common.serving.server import Listeners, Server

SERVICE = "paceline.v1.FleetService"
Behaviour = Callable[[fleet_pb2.WatchRequest, Any], Awaitable[fleet_pb2.WatchResponse]]


class Fleet(fleet_pb2_grpc.FleetServiceServicer):
    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    async def Watch(self, request: fleet_pb2.WatchRequest, context: Any) -> AsyncIterator[fleet_pb2.WatchResponse]:
        yield await self._behaviour(request, context)


async def echo(request: fleet_pb2.WatchRequest, context: Any) -> fleet_pb2.WatchResponse:
    return fleet_pb2.WatchResponse(protocol_version=request.protocol_version)


def server(
    behaviour: Behaviour = echo,
    listeners: Listeners | None = None,
    metrics: CollectorRegistry | None = None,
    entry: grpc.ServerCredentials | None = None,
) -> Server:
    return Server(
        name="fleet",
        listeners=listeners or Listeners(),
        register=lambda made: fleet_pb2_grpc.add_FleetServiceServicer_to_server(Fleet(behaviour), made),
        service_names=(SERVICE,),
        metrics=metrics or CollectorRegistry(),
        entry=entry,
    )


async def watch(channel: grpc.aio.Channel, version: int = 1) -> int:
    """Calls Watch; returns the version that came back."""
    stub = cast("fleet_pb2_grpc.FleetServiceAsyncStub", fleet_pb2_grpc.FleetServiceStub(channel))
    answers = [a async for a in stub.Watch(fleet_pb2.WatchRequest(protocol_version=version), timeout=30)]
    return answers[0].protocol_version
