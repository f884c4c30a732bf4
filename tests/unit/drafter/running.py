"""A real drafter service on a Unix socket, and the target's calls to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from services.common.pair.attach import AttachOffer
from services.common.pair.attach_convert import offer_to_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.pb.paceline.v1.drafter_pb2_grpc import DrafterServiceStub
from services.common.serving.channel import connect
from services.drafter.app import DrafterApp
from services.drafter.settings import DrafterSettings

PATIENCE_S = 40.0


class Drafter:
    """What a target may call; `app` is the service behind it."""

    def __init__(self, app: DrafterApp, channel: grpc.aio.Channel) -> None:
        self.app = app
        self._channel = channel
        self._stub: Any = DrafterServiceStub(channel)

    async def attach(self, offer: AttachOffer, **changes: Any) -> pb.AttachResponse:
        """Attaches with the offer, some of its fields changed."""
        request = offer_to_pb(replace(offer, **changes))
        answer: pb.AttachResponse = await self._stub.Attach(request, timeout=PATIENCE_S, wait_for_ready=True)
        return answer

    def pace(self) -> "grpc.aio.StreamStreamCall[pb.PaceRequest, pb.PaceResponse]":
        """Opens a Pace stream."""
        stream: grpc.aio.StreamStreamCall[pb.PaceRequest, pb.PaceResponse] = self._stub.Pace(
            timeout=PATIENCE_S, wait_for_ready=True
        )
        return stream

    async def describe(self, version: int = 1) -> pb.DrafterServiceDescribeResponse:
        """The drafter's state."""
        request = pb.DrafterServiceDescribeRequest(protocol_version=version)
        answer: pb.DrafterServiceDescribeResponse = await self._stub.Describe(
            request, timeout=PATIENCE_S, wait_for_ready=True
        )
        return answer

    async def generation(self) -> int:
        """The generation attached, as Describe tells it."""
        return (await self.describe()).generation

    async def raw(self, method: str, message: bytes) -> bytes:
        """Sends bytes that may be no message."""
        call: Any = self._channel.unary_unary(f"/paceline.v1.DrafterService/{method}")
        answer: bytes = await call(message, timeout=PATIENCE_S, wait_for_ready=True)
        return answer


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Drafter]:
    """Starts a drafter, waits until it is ready, and drains it in the end."""
    address = f"unix:{folder}/drafter.sock"
    app = DrafterApp(DrafterSettings(**({"proposer": "ngram", "grpc": address} | settings)))
    await app.start()
    try:
        await until(lambda: app.ready)
        async with connect(address) as channel:
            yield Drafter(app, channel)
    finally:
        await app.drain()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: it does not come true.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def freed(drafter: Drafter) -> None:
    """Waits until nothing is attached."""
    async with asyncio.timeout(PATIENCE_S):
        while await drafter.generation():
            await asyncio.sleep(0.01)


async def ask(
    stream: "grpc.aio.StreamStreamCall[pb.PaceRequest, pb.PaceResponse]", number: int, **fields: Any
) -> pb.PaceResponse:
    """Asks for one round and waits for it."""
    request: dict[str, Any] = {"generation": 1, "bucket": 1, "width": 4, "rows": 1} | fields
    await stream.write(pb.PaceRequest(round=number, **request))
    answer = await stream.read()
    assert isinstance(answer, pb.PaceResponse), f"the stream ended: {await stream.code()}: {await stream.details()}"
    return answer


def mapped_arenas() -> list[str]:
    """The inode of every mapping of an arena in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split()[4] for line in lines if "paceline-arena" in line]
