"""A gateway as small as can be: one session with a target, everything it received by request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import connect

WAIT_S = 240.0


@dataclass
class Received:
    """What came for one request; positions are checked as they come."""

    first: int = 0
    tokens: list[int] = field(default_factory=list)
    ends: list[pb.RequestEnd] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> pb.RequestEnd:
        """The one end."""
        (end,) = self.ends
        return end

    async def ended(self) -> pb.RequestEnd:
        """Waits for the end."""
        await self._until(lambda: bool(self.ends))
        return self.end

    async def at_least(self, tokens: int) -> None:
        """Waits for so many tokens, or the end."""
        await self._until(lambda: len(self.tokens) >= tokens or bool(self.ends))

    def take(self, update: pb.RequestUpdate) -> None:
        """Takes news in."""
        if update.token_ids:
            assert update.position == self.first + len(self.tokens), "each position once, in order"
        assert not self.ends, "nothing follows an end"
        self.tokens.extend(update.token_ids)
        if update.HasField("end"):
            self.ends.append(update.end)
        self.news.set()

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not done():
                self.news.clear()
                await self.news.wait()


def start(
    name: str,
    token_ids: Sequence[int],
    tokens: int,
    *,
    prompt_length: int | None = None,
    sampling: types.Sampling | None = None,
    **fields: object,
) -> pb.Start:
    """A Start frame; end-of-sequence tokens are ignored so that lengths are known."""
    return pb.Start(
        request_id=name,
        token_ids=token_ids,
        prompt_length=len(token_ids) if prompt_length is None else prompt_length,
        sampling=sampling,
        stopping=types.Stopping(max_tokens=tokens, ignore_eos=True),
        **fields,  # type: ignore[arg-type]
    )


class SessionClient:
    """One open session; use as an async context manager."""

    def __init__(
        self,
        address: str,
        version: int = PROTOCOL_VERSION,
        secret: str = "",
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._channel = connect(address, credentials)
        self._secret = secret
        stub: Any = rpc.TargetServiceStub(self._channel)  # the same class over asyncio channels
        self._call = stub.Session()
        self._version = version
        self._reader: asyncio.Task[None] | None = None
        self.requests: dict[str, Received] = {}
        self.rounds: list[pb.Round] = []
        self.go_away: pb.GoAway | None = None
        self.welcome = pb.Welcome()
        self.status: grpc.StatusCode | None = None

    async def __aenter__(self) -> Self:
        await self.hello()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Breaks the session off."""
        self._call.cancel()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def hello(self) -> None:
        """Opens the session and reads the welcome."""
        hello = pb.Hello(protocol_version=self._version, gateway_id="test", secret=self._secret)
        try:
            await self._call.write(pb.SessionRequest(hello=hello))
            async with asyncio.timeout(WAIT_S):
                first = await self._call.read()
        except grpc.RpcError as error:
            self.status = error.code()
            return
        assert isinstance(first, pb.SessionResponse)
        self.welcome = first.welcome

    async def start(self, frame: pb.Start) -> Received:
        """Starts a request."""
        received = Received(first=len(frame.token_ids) - frame.prompt_length)
        self.requests[frame.request_id] = received
        await self._call.write(pb.SessionRequest(start=frame))
        return received

    async def send(self, frame: pb.SessionRequest) -> None:
        """Sends any frame."""
        await self._call.write(frame)

    async def cancel(self, name: str, kept: int, reason: str = "cancel", others: Sequence[pb.Cancel] = ()) -> None:
        """Cancels a request, and others by the same frame."""
        cancel = pb.Cancel(request_id=name, tokens_kept=kept, reason=reason, others=others)
        await self._call.write(pb.SessionRequest(cancel=cancel))

    async def closed(self) -> grpc.StatusCode:
        """Waits until the target has ended the stream; its status."""
        async with asyncio.timeout(WAIT_S):
            code: grpc.StatusCode = await self._call.code()
            return code

    async def _read(self) -> None:
        try:
            async for frame in self._frames():
                if frame.HasField("go_away"):
                    self.go_away = frame.go_away
                    continue
                self.rounds.append(frame.round)
                for update in frame.round.updates:
                    self.requests.setdefault(update.request_id, Received()).take(update)
        except grpc.RpcError:
            pass
        self.status = await self._call.code()

    async def _frames(self) -> AsyncIterator[pb.SessionResponse]:
        while True:
            frame = await self._call.read()
            if not isinstance(frame, pb.SessionResponse):
                return
            yield frame
