"""Z6: any 4 MiB, with or without a key, cost others neither a stream nor their pace, and little memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest_asyncio

from deploy.stack import ServiceProcess
from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc
from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES, connect
from services.gateway.tenancy.tenants import digest
from tests.faults.conftest import Size
from tests.faults.http2 import END_HEADERS, END_STREAM, HEADERS, METHOD, RST_STREAM, START, frame, literal, opening
from tests.faults.test_half_sent import resident_mib
from tests.integration.pair import ENVIRONMENT
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.held import Held
from tests.support.hostile_frames import PING, bombs, call, floods
from tests.support.hostile_messages import places, requests, strange
from tests.support.warm import START_S, WarmProcess

TENANTS = "".join(
    f"[[tenant]]\nname = '{name}'\nkey_sha256 = ['{digest(name)}']\nmax_requests = 32\n"
    for name in ("hostile", "other")
)
HOSTILE, OTHER = (("authorization", f"Bearer {name}") for name in ("hostile", "other"))
STREAMS, CONNECTIONS = 8, 14
GROWN_MIB = 64
GIVEN_BACK_S = 30.0
PAUSE_S = 1.0
SERVICE = "/paceline.v1.InferenceService/"


class Gateway:
    """A gateway process with streams of another tenant through it."""

    def __init__(self, process: ServiceProcess) -> None:
        self.process = process
        self.bound = process.bound(START_S)
        self.messages = 0
        self.longest_s = 0.0
        """The longest pause of a stream, without what the machine held the gateway or this process up."""
        self.before = self.most = 0.0
        self._held = Held(process.process.pid)
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[None]:
        """Eight of them, which must all live on; looks at the memory meanwhile."""
        async with connect(self.bound["grpc"]) as channel:
            stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
            tasks = [asyncio.create_task(self._stream(stub)) for _ in range(STREAMS)]
            while self.messages < 10 * STREAMS:
                await asyncio.sleep(0.05)
            self.before = self.most = resident_mib(self.process)
            looking = asyncio.create_task(self._look())
            self.longest_s = 0.0
            try:
                async with self._held.looking():
                    yield
                    await self.goes_on()
                assert not any(task.done() for task in tasks), "no stream of others is lost"
            finally:
                for task in (looking, *tasks):
                    task.cancel()
                await asyncio.gather(looking, *tasks, return_exceptions=True)

    async def goes_on(self) -> None:
        """Every stream has given more since."""
        at = self.messages
        async with asyncio.timeout(60.0):
            while self.messages < at + 4 * STREAMS:
                await asyncio.sleep(0.02)

    async def given_back(self) -> float:
        """Waits until memory is given back; how much is still held."""
        end = time.monotonic() + GIVEN_BACK_S
        while (held := resident_mib(self.process) - self.before) > GROWN_MIB / 2 and time.monotonic() < end:
            await asyncio.sleep(0.2)
        return held

    async def _stream(self, stub: Any) -> None:
        asked = inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text="hello"))
        asked.stopping.max_tokens, asked.stopping.ignore_eos = 1_000_000, True
        latest = 0.0
        async for _ in stub.Generate(asked, metadata=(OTHER,)):
            now = time.monotonic()
            if latest and now - latest > self.longest_s:
                self.longest_s = max(self.longest_s, now - latest - self._held.between(latest, now))
            latest = now
            self.messages += 1

    async def _look(self) -> None:
        while True:
            self.most = max(self.most, resident_mib(self.process))
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway with two tenants, over a fake target whose texts are long."""
    target = FakeTarget(slots=16, pace_s=0.02, burst=1, context_limit=1 << 21)
    (tmp_path / "tenants.toml").write_text(TENANTS)
    flags = ["--tokenizer", str(write_tokenizer(tmp_path / "model")), "--tenants", str(tmp_path / "tenants.toml")]
    flags += ["--targets", await target.start(), "--propagation-s", "0", "--drain-grace-s", "0"]
    process = WarmProcess("gateway", ["services.gateway", *flags], tmp_path, ENVIRONMENT)
    try:
        yield await asyncio.to_thread(Gateway, process)
    finally:
        await asyncio.to_thread(process.stop)
        await target.stop()


def judge(gateway: Gateway, what: str, held: float, size: Size) -> None:
    """Memory always; the pace of others at whole sizes."""
    grown = gateway.most - gateway.before
    print(
        f"Z6 {what}: +{grown:.0f} MiB at most, {held:+.0f} MiB later, others paused {gateway.longest_s:.2f} s at most"
    )
    assert grown <= GROWN_MIB
    assert held <= GROWN_MIB / 2
    if size(0, 1):
        assert gateway.longest_s <= PAUSE_S


def messages(rng: random.Random, count: int) -> list[tuple[str, bytes]]:
    """Messages of 4 MiB, for methods that exist: every field of every request filled, or a sample of them."""
    found = [
        (method.name, place.filled_to(MAX_CLIENT_MESSAGE_BYTES - 1000))
        for method in inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].methods
        for place in places(method.input_type)
    ]
    found += [("Generate", data) for data in strange(MAX_CLIENT_MESSAGE_BYTES - 1000)]
    return rng.sample(found, min(count, len(found)))


async def test_z6_a_message_filled_with_any_field_hurts_nobody(
    gateway: Gateway, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    assert len(requests()) > 4
    chosen = messages(rng, size(5, 1000))
    async with gateway.streams(), connect(gateway.bound["grpc"]) as channel:
        for name, data in chosen:
            await asyncio.gather(*(sent(channel, name, data) for _ in range(4)))
        held = await gateway.given_back()
    judge(gateway, f"{len(chosen)} messages", held, size)
    report_counts("hostile_messages", 4 * len(chosen))


async def sent(channel: grpc.aio.Channel, name: str, data: bytes) -> None:
    """One call; whatever its answer is, it is one for its sender."""
    ask: Any = channel.unary_stream(SERVICE + name)
    with contextlib.suppress(grpc.aio.AioRpcError):
        async with asyncio.timeout(60.0):
            await ask(data, metadata=(HOSTILE,)).read()


def attacks() -> Iterator[tuple[str, bytes]]:
    """What one connection sends at once, without a key and with one."""
    key = literal(b"authorization", b"Bearer hostile")
    for name, block in bombs():
        yield name, START + b"".join(call(number, block) for number in range(1, 201, 2))
    for name, data in floods():
        yield name, START + data
    for name, more in (("without a key", b""), ("with a key", key)):
        headers = opening(METHOD, more)
        calls = (frame(HEADERS, END_HEADERS | END_STREAM, number, headers) for number in range(1, 20_001, 2))
        yield f"calls {name}", START + b"".join(calls)
        resets = (
            frame(HEADERS, END_HEADERS, number, headers) + frame(RST_STREAM, 0, number, bytes(4))
            for number in range(1, 20_001, 2)
        )
        yield f"calls that are reset {name}", START + b"".join(resets)
    yield "pings", START + frame(PING, 0, 0, bytes(8)) * 100_000


async def attack(address: str, data: bytes, end: float) -> int:
    """Sends it over connections of one after the other until the time is up; bytes that were taken."""
    host, _, port = address.rpartition(":")
    taken = 0
    while not taken or time.monotonic() < end:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(5.0):
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    for at in range(0, len(data), 1 << 16):
                        writer.write(data[at : at + (1 << 16)])
                        await writer.drain()
                        taken += 1 << 16
                    await reader.read(1 << 16)
                finally:
                    writer.transport.abort()
        taken += 1
    return taken


async def test_z6_no_frames_hurt_anybody(
    gateway: Gateway, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """Sixty seconds from fourteen connections with --full, one round of each by default."""
    chosen = list(attacks())
    seconds = size(0, 60)
    rng.shuffle(chosen)
    async with gateway.streams():
        end = time.monotonic() + seconds
        streams = [attack(gateway.bound["grpc"], data, end) for _, data in chosen]
        waves = [streams[at : at + CONNECTIONS] for at in range(0, len(streams), CONNECTIONS)]
        taken = 0
        for wave in waves:
            taken += sum(await asyncio.gather(*wave))
        held = await gateway.given_back()
    judge(gateway, f"{len(chosen)} attacks, {taken / 1e6:.0f} MB", held, size)
    report_counts("hostile_connections", len(chosen))


async def test_z6_the_port_of_health_withstands_too(gateway: Gateway, size: Size) -> None:
    async with gateway.streams():
        end = time.monotonic() + size(0, 20)
        chosen = [data for _, data in attacks()][:CONNECTIONS]
        await asyncio.gather(*(attack(gateway.bound["health"], data, end) for data in chosen))
        held = await gateway.given_back()
    judge(gateway, "on the port of health", held, size)
