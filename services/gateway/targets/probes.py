"""Signs of life that a gateway can ask a silent target for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.serving.server import LIVENESS
from services.common.serving.tls import Peers

Health = Callable[[], Awaitable[bool | None]]
"""Whether the target's engine moves, as its health service says; None when that gave no answer."""
Reach = Callable[[], Awaitable[bool]]
"""Whether the target's process answers a new connection."""


def health(channel: grpc.aio.Channel, within_s: float) -> Health:
    """Asks the target's own health service over a connection that stands."""
    stub = cast("health_pb2_grpc.HealthAsyncStub", health_pb2_grpc.HealthStub(channel))
    request = health_pb2.HealthCheckRequest(service=LIVENESS)

    async def ask() -> bool | None:
        try:
            answer = await stub.Check(request, timeout=within_s)
        except grpc.RpcError:
            return None
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    return ask


def reach(peers: Peers, address: str, within_s: float) -> Reach:
    """Opens a connection of its own and waits for the peer's first frame.

    gRPC's own threads send that frame without Python. So a target that is starved or blocked answers; one behind a dead
    link or in a stopped process does not.
    """

    async def ask() -> bool:
        try:
            async with asyncio.timeout(within_s), peers.connect(address) as channel:
                await channel.channel_ready()
        except (TimeoutError, OSError):
            return False
        return True

    return ask
