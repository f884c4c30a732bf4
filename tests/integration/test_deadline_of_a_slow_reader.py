"""A deadline that passes while a client does not read: gRPC still has a message, and takes no other before it."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import types_pb2
from services.common.request.errors import Reason
from services.gateway.streams import streams
from tests.integration.gateway_stack import WAIT_S, ask_for, harness, rich
from tests.support.fakes_target import FakeTarget

TOKENS = 100_000
NARROW = ("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)
"""What is kept for a client that does not read is soon full."""


def endless() -> Any:
    """A request that outlasts its deadline."""
    asked = ask_for(max_tokens=TOKENS)
    asked.timeout.FromMilliseconds(1500)
    return asked


def quick() -> FakeTarget:
    """Fills what gRPC keeps for a client within its deadline."""
    return FakeTarget(pace_s=0.0002, context_limit=10 * TOKENS, burst=8)


async def read(call: Any, cut: asyncio.Event, then_s: float = 0.0) -> list[Any]:
    """Reads one message, then none until the deadline has cut a write short and some time behind that; then all."""
    messages = aiter(call)
    first = await anext(messages)
    await asyncio.wait_for(cut.wait(), WAIT_S)
    await asyncio.sleep(then_s)
    return [first, *[message async for message in messages]]


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a stream's deadline has passed for the gateway."""
    passed, expire = asyncio.Event(), streams.Stream.expire

    async def expired(stream: streams.Stream) -> None:
        passed.set()
        await expire(stream)

    monkeypatch.setattr(streams.Stream, "expire", expired)
    return passed


async def test_one_that_stands_still_is_told_of_its_deadline_and_does_not_wait(
    tmp_path: Path, cut: asyncio.Event
) -> None:
    async with harness(tmp_path, [quick()], outbox_tokens=10 * TOKENS, client_options=NARROW) as one:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await asyncio.wait_for(read(one.stub.Generate(endless()), cut, 2 * streams.LAST_WRITE_S), WAIT_S)
    assert rich(late.value).reason is Reason.DEADLINE


async def test_one_that_reads_on_gets_the_rest_and_the_end(
    tmp_path: Path, cut: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LAST_WRITE_S", WAIT_S)  # however slowly it reads
    async with harness(tmp_path, [quick()], outbox_tokens=10 * TOKENS, client_options=NARROW) as one:
        *deltas, end = await asyncio.wait_for(read(one.stub.Generate(endless()), cut), WAIT_S)
    assert end.final.finish_reason == types_pb2.FINISH_REASON_DEADLINE
    told = sum(len(message.delta.token_ids) for message in deltas)
    assert end.final.usage.completion_tokens == told, "no token between is lost"
