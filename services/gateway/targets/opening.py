"""Opens a session with a target."""

import asyncio
from collections.abc import Callable
from typing import cast

import grpc

from services.common.pb.paceline.v1 import target_pb2, target_pb2_grpc
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.secret import Secret
from services.gateway.targets import outgoing
from services.gateway.targets.away import SessionLostError, VersionError
from services.gateway.targets.heartbeat import TICK_S, Heartbeat
from services.gateway.targets.probes import Reach, health
from services.gateway.targets.rounds import proposer, rounds, with_known
from services.gateway.targets.session import Call, Session
from services.gateway.targets.silence import QUIET, SILENT_AFTER

WELCOME_S = 4.0
"""Longest wait for a target's first frame."""
DESCRIBE_S = 1.0
"""Longest wait for what a target tells of itself."""


async def open_session(
    channel: grpc.aio.Channel, gateway_id: str, on_change: Callable[[], None], reach: Reach, secret: Secret = Secret()
) -> Session:
    """Says Hello and waits for the Welcome; `on_change` is called when the target says that it will go, or who drafts.

    `reach` is asked when the target sends nothing; `secret` is what the target wants to hear.

    Raises:
        SessionLostError: the target ends the stream or speaks another version.
        TimeoutError: it does not answer in time.
        grpc.RpcError: the stream failed.
    """
    stub = cast("target_pb2_grpc.TargetServiceAsyncStub", target_pb2_grpc.TargetServiceStub(channel))
    call, welcome = await with_known(secret, lambda text: _greeted(stub, gateway_id, text))
    heartbeat = Heartbeat(health(channel, SILENT_AFTER * TICK_S), reach)
    asked = (channel, secret, DESCRIBE_S)
    return Session(call, welcome, on_change, heartbeat, rounds(*asked), proposer(*asked))


async def _greeted(
    stub: "target_pb2_grpc.TargetServiceAsyncStub", gateway_id: str, secret: str
) -> tuple[Call, target_pb2.Welcome]:
    call: Call = stub.Session()
    try:
        async with asyncio.timeout(WELCOME_S):
            await call.write(outgoing.hello(gateway_id, secret, QUIET * TICK_S))
            response = await call.read()
        if not isinstance(response, target_pb2.SessionResponse):
            raise SessionLostError("it ended the session at once")
        if response.welcome.protocol_version != PROTOCOL_VERSION:
            raise VersionError(response.welcome.protocol_version)
    except BaseException:
        call.cancel()
        raise
    return call, response.welcome
