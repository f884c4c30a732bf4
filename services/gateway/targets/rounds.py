"""Asks a target what its latest rounds did and who drafts, for people who watch."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import grpc

from services.common.pb.paceline.v1 import target_pb2, target_pb2_grpc
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.secret import Secret
from services.gateway.targets.away import unknown_secret
from services.gateway.targets.messages import PastRound

Told = TypeVar("Told")

Rounds = Callable[[], Awaitable[tuple[PastRound, ...]]]
"""The latest rounds of a target, oldest first; none when it gives no answer."""


Proposer = Callable[[], Awaitable[str]]
"""The kind of proposer in use; empty when the target gives no answer."""


def rounds(channel: grpc.aio.Channel, secret: Secret, within_s: float) -> Rounds:
    """Asks over a connection that stands; `secret` is what the target wants to hear."""

    async def ask() -> tuple[PastRound, ...]:
        answer = await _described(channel, secret, within_s)
        return tuple(_round(record) for record in answer.rounds) if answer else ()

    return ask


def proposer(channel: grpc.aio.Channel, secret: Secret, within_s: float) -> Proposer:
    """Asks as `rounds` does."""

    async def ask() -> str:
        answer = await _described(channel, secret, within_s)
        return answer.model.proposer if answer else ""

    return ask


async def _described(
    channel: grpc.aio.Channel, secret: Secret, within_s: float
) -> target_pb2.TargetServiceDescribeResponse | None:
    stub = cast("target_pb2_grpc.TargetServiceAsyncStub", target_pb2_grpc.TargetServiceStub(channel))

    async def described(text: str) -> target_pb2.TargetServiceDescribeResponse:
        request = target_pb2.TargetServiceDescribeRequest(protocol_version=PROTOCOL_VERSION, secret=text)
        return await stub.Describe(request, timeout=within_s)

    try:
        return await with_known(secret, described)
    except grpc.RpcError:
        return None
    except asyncio.CancelledError:
        # So says gRPC where the connection was closed, the target being lost: nobody has cancelled who asks.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return None


async def with_known(secret: Secret, call: Callable[[str], Awaitable[Told]]) -> Told:
    """Calls with the present secret, and with those before it while the target does not know it.

    Raises:
        grpc.RpcError: as the last call.
    """
    *first, last = secret.known
    for text in first:
        try:
            return await call(text)
        except grpc.aio.AioRpcError as error:
            if not unknown_secret(error):
                raise
    return await call(last)


def _round(record: target_pb2.RoundRecord) -> PastRound:
    return PastRound(
        number=record.number,
        width=record.width,
        requests=record.requests,
        committed=record.committed,
        accepted=record.accepted,
        age_s=record.age_us / 1e6,
    )
