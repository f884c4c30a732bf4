"""TargetService: the session stream of each gateway, and Describe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from services.common.device.numerics import Numerics
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.request.error_convert import duration
from services.common.request.errors import Code, PacelineError, Reason, invalid_field, protocol, unavailable
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.callers import Callers
from services.target.core.commands import Command
from services.target.core.launching import Launching
from services.target.sessions.frames import frame_to_pb, numerics_to_pb
from services.target.sessions.reader import Reader
from services.target.sessions.served_model import ServedModel
from services.target.sessions.sessions import HEARTBEAT_S, GatewaySession, Sessions, SlowGatewayError, launched

_HELLO_TIMEOUT_S = 10.0
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """What the service works with; ``submit`` reaches the engine, ``describe`` and ``load`` gather its state.

    While a round is ``launching``, a gateway's frames wait, and large ones to it.
    """

    sessions: Sessions
    submit: Callable[[Command], None]
    describe: Callable[[], pb.TargetServiceDescribeResponse]
    load: Callable[[], pb.Load]
    model: ServedModel
    numerics: Numerics
    proposer: Callable[[], str]
    pair_id: str
    default_max_tokens: int
    max_request_s: float
    launching: Launching = field(default_factory=Launching)


class TargetService(rpc.TargetServiceServicer):
    """Converts between the protobuf of gateways and the values of the engine."""

    def __init__(self, callers: Callers = Callers()) -> None:
        """Refuses all calls until `open`, and calls from others than `callers` always."""
        self._callers = callers
        self._opened: ServiceParts | None = None
        self._since = 0.0

    def open(self, parts: ServiceParts) -> None:
        """Takes calls from now on."""
        self._opened, self._since = parts, time.monotonic()

    @property
    def _parts(self) -> ServiceParts:
        if self._opened is None:
            raise unavailable(Reason.NO_TARGET, "the target is starting")
        return self._opened

    async def Session(
        self, request_iterator: AsyncIterator[pb.SessionRequest], context: Context
    ) -> AsyncIterator[pb.SessionResponse]:
        """Serves one gateway until it leaves or stops reading, or the target ends.

        Raises:
            PacelineError: The caller broke the protocol, did not read, or may not call.
        """
        hello = await _hello(request_iterator)
        self._callers.check(context, hello.secret)
        session, launching = self._open_session(hello), self._parts.launching
        reader = asyncio.create_task(Reader(self._parts, session).read(request_iterator))
        ended: Any = lambda _: self._leave(session, reader)  # noqa: E731 - grpc-stubs want a class here
        context.add_done_callback(ended)
        try:
            yield self._welcome()
            async for frame in session.frames():
                if launching.begun and frame.large:
                    await launched(launching)
                yield frame_to_pb(frame)
            _raise_failure(reader)
        except SlowGatewayError as slow:
            raise PacelineError(Code.RESOURCE_EXHAUSTED, Reason.SLOW_CLIENT, str(slow)) from None
        finally:
            self._leave(session, reader)

    async def Describe(
        self, request: pb.TargetServiceDescribeRequest, context: Context
    ) -> pb.TargetServiceDescribeResponse:
        """State, settings, budget and the latest rounds.

        Raises:
            PacelineError: The caller speaks another version or may not call, or the target is starting.
        """
        if request.protocol_version != PROTOCOL_VERSION:
            raise protocol(PROTOCOL_VERSION, request.protocol_version)
        self._callers.check(context, request.secret)
        return self._parts.describe()

    def _open_session(self, hello: pb.Hello) -> GatewaySession:
        quiet_s = hello.quiet.seconds + hello.quiet.nanos / 1e9 if hello.HasField("quiet") else HEARTBEAT_S
        return self._parts.sessions.open(hello.gateway_id, quiet_s, settles=hello.settles)

    def _leave(self, session: GatewaySession, reader: asyncio.Task[None]) -> None:
        """Runs when the stream ends for any reason; a second call changes nothing."""
        reader.cancel()
        self._parts.sessions.leave(session)

    def _welcome(self) -> pb.SessionResponse:
        parts = self._parts
        welcome = pb.Welcome(
            protocol_version=PROTOCOL_VERSION,
            pair_id=parts.pair_id,
            model=parts.model.to_pb(parts.proposer()),
            load=parts.load(),
            features=parts.model.features,
            numerics=numerics_to_pb(parts.numerics),
            up=duration(time.monotonic() - self._since),
        )
        return pb.SessionResponse(welcome=welcome)


async def _hello(frames: AsyncIterator[pb.SessionRequest]) -> pb.Hello:
    try:
        first = await asyncio.wait_for(anext(frames), _HELLO_TIMEOUT_S)
    except (StopAsyncIteration, TimeoutError):
        raise invalid_field("frame", "the first frame must be hello") from None
    if first.WhichOneof("frame") != "hello":
        raise invalid_field("frame", "the first frame must be hello")
    if first.hello.protocol_version != PROTOCOL_VERSION:
        raise protocol(PROTOCOL_VERSION, first.hello.protocol_version)
    return first.hello


def _raise_failure(reader: asyncio.Task[None]) -> None:
    """Raises what the gateway did wrong, once what was queued before it has been sent."""
    if reader.done() and not reader.cancelled():
        error = reader.exception()
        if error is not None:
            raise error
