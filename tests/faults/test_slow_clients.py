"""F9: clients that read once a second or never. They lose their own streams at most; the others notice nothing."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.metrics.catalogue import GENERATING
from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.request.errors import Reason
from services.common.serving.channel import connect
from tests.bench.gateway import process, request
from tests.faults.conftest import Size
from tests.faults.rest import scrape
from tests.integration.gateway_stack import harness, rich
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.metrics import value_of
from tests.support.ports import free_port

PACE_S, ENDLESS, ROUNDS = 0.1, 8000, 40
# A client with a window this small holds some dozens of messages that nobody has read.
NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 2048))
CHANNELS = 8


@dataclass
class Gateway:
    """A gateway process over a fake target's process."""

    address: str
    metrics: str


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Gateway]:
    flags = ("--tokenizer", str(write_tokenizer(folder)), "--outbox-tokens", "256", "--log-level", "error")
    with process("tests.bench.gateway", "--serve-target", str(PACE_S)) as (_, target):
        metrics = f"127.0.0.1:{free_port()}"
        with process("services.gateway", *flags, "--targets", target, "--metrics", metrics) as (_, gateway):
            yield Gateway(gateway, metrics)


async def gaps(stub: Any, streams: int) -> list[float]:
    """Seconds between messages of clients that read at once."""

    async def read() -> list[float]:
        last, found = time.monotonic(), []
        async for response in stub.Generate(request(ROUNDS)):
            now = time.monotonic()
            if response.HasField("delta") and response.delta.position:
                found.append(now - last)
            last = now
        return found

    return [gap for one in await asyncio.gather(*(read() for _ in range(streams))) for gap in one]


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


class Slow:
    """A client that reads every so many seconds; it may lose its stream, but nothing it got is out of order."""

    def __init__(self, stub: Any, pause_s: float) -> None:
        self._call = stub.Generate(request(ENDLESS))
        self._pause_s = pause_s
        self.tokens = 0
        self.lost = False

    async def take(self) -> bool:
        """Reads one message; False at the end."""
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            assert rich(error).reason is Reason.SLOW_CLIENT
            self.lost = True
            return False
        if response is grpc.aio.EOF or response.HasField("final"):
            return False
        assert response.delta.position == self.tokens
        self.tokens += len(response.delta.token_ids)
        return True

    async def run(self) -> None:
        while await self.take():
            await asyncio.sleep(self._pause_s)

    def leave(self) -> None:
        self._call.cancel()


@pytest.mark.whole
@pytest.mark.alone
async def test_f9_stalled_clients_cost_nobody_else_anything(
    tmp_path: Path, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    readers, stalled_count, slow_count = size(8, 64), size(24, 180), size(4, 20)
    async with running(tmp_path) as gateway, AsyncExitStack() as stack:
        channel = await stack.enter_async_context(connect(gateway.address))
        narrow = [await stack.enter_async_context(connect(gateway.address, None, NARROW)) for _ in range(CHANNELS)]
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        stubs = [inference_pb2_grpc.InferenceServiceStub(each) for each in narrow]
        await gaps(stub, readers)
        alone = min([p99(await gaps(stub, readers)) for _ in range(3)])
        stalled = [Slow(stubs[number % CHANNELS], 0.0) for number in range(stalled_count)]
        slow = [Slow(stubs[number % CHANNELS], 1.0) for number in range(slow_count)]
        reading = [asyncio.create_task(each.run()) for each in slow]
        assert all(await asyncio.gather(*(each.take() for each in stalled)))
        beside = min([p99(await gaps(stub, readers)) for _ in range(3)])
        async with asyncio.timeout(240):
            while scrape(gateway.metrics).get("paceline_gateway_slow_clients_total", 0) < stalled_count:
                await asyncio.sleep(0.2)
        for each in stalled:
            await each.run()
        assert all(each.lost for each in stalled), "a full outbox ends the stream with a typed status"
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        assert all(task.cancelled() or task.exception() is None for task in reading)
        for each in slow:
            each.leave()
    print(f"F9: {stalled_count} stalled and {slow_count} slow beside {readers}: ", end="")
    print(f"p99 between messages {alone * 1e3:.0f} ms alone, {beside * 1e3:.0f} ms beside them")
    report_counts("stalled_clients", stalled_count)
    assert beside <= 1.2 * alone


async def test_f9_a_client_that_leaves_while_it_is_written_to_is_no_defect(tmp_path: Path) -> None:
    target = FakeTarget(pace_s=0.01, context_limit=ENDLESS * 2)
    async with harness(tmp_path, [target], client_options=NARROW, outbox_tokens=1 << 20) as one:
        stalled = Slow(one.stub, 0.0)
        assert await stalled.take()
        requests, endpoint = one.app.metrics.gateway_requests, GENERATING[0]
        delivered = one.app.metrics.gateway_delivered_tokens
        before = -1.0
        async with asyncio.timeout(60):
            while value_of(delivered) != before:
                before = value_of(delivered)
                await asyncio.sleep(0.5)
        stalled.leave()
        async with asyncio.timeout(30):
            while not value_of(requests[endpoint, "CANCELLED"]):
                await asyncio.sleep(0.05)
        assert value_of(requests[endpoint, "INTERNAL"]) == 0
