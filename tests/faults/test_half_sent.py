"""Z5: calls whose messages never end take little memory: none without a key, that of a few messages with one."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from deploy.stack import ServiceProcess
from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc
from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES, connect
from services.gateway.tenancy.tenants import digest
from tests.faults.half_sent import LONGEST_S, PIECE, ZEROS, HalfSent, half_sent
from tests.faults.http2 import literal
from tests.integration.pair import ENVIRONMENT
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.warm import START_S, WarmProcess

CONNECTIONS, STREAMS = 4, 50
TENANTS = f"[[tenant]]\nname = 'a'\nkey_sha256 = ['{digest('key')}']\nmax_requests = 32\n"
KEY = ("authorization", "Bearer key")
QUIET_S = 0.7
LATE_S = 0.5
"""Where this process stood still for longer, it may have missed the two seconds in which a status can be read."""


@pytest_asyncio.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """A gateway process with one tenant, over a fake target."""
    target = FakeTarget()
    (tmp_path / "tenants.toml").write_text(TENANTS)
    flags = ["--tokenizer", str(write_tokenizer(tmp_path / "model")), "--tenants", str(tmp_path / "tenants.toml")]
    flags += ["--targets", await target.start(), "--propagation-s", "0", "--drain-grace-s", "0"]
    flags += ["--http", "127.0.0.1:0"]
    process = WarmProcess("gateway", ["services.gateway", *flags], tmp_path, ENVIRONMENT)
    try:
        await asyncio.to_thread(process.bound, START_S)
        yield process
    finally:
        await asyncio.to_thread(process.stop)
        await target.stop()


def resident_mib(process: ServiceProcess) -> float:
    """Memory that the process holds."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


async def attack(
    address: str, *headers: bytes, message_bytes: int = MAX_CLIENT_MESSAGE_BYTES, refused: int = 0
) -> list[HalfSent]:
    """Every call sends its message less one frame, as far as the gateway takes it; so many are to be refused."""
    peers = [await half_sent(address) for _ in range(CONNECTIONS)]
    for peer in peers:
        peer.open(STREAMS, message_bytes, *headers)

    def answered() -> bool:
        return sum(len(peer.refused) for peer in peers) >= refused

    await asyncio.gather(*(peer.run(QUIET_S, answered) for peer in peers))
    return peers


async def tokenised(address: str) -> int:
    """Tokens of a prompt that the tenant sends; its place must be free."""
    async with connect(address) as channel:
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        request = inference_pb2.TokenizeRequest(prompt=inference_pb2.Prompt(text="hello"))
        reply = await stub.Tokenize(request, metadata=(KEY,), timeout=30.0)
    return len(reply.tokens.ids)


@pytest.mark.parametrize(("key", "bound_mib"), [(False, 32), (True, 256)], ids=["without a key", "with a key"])
async def test_z5_half_sent_messages_take_little_memory(gateway: ServiceProcess, key: bool, bound_mib: int) -> None:
    address = gateway.bound(START_S)["grpc"]
    assert await tokenised(address)
    before = resident_mib(gateway)
    expected = CONNECTIONS * STREAMS - (32 if key else 0)
    headers = [literal(*(text.encode() for text in KEY))] if key else []
    peers = await attack(address, *headers, refused=expected)
    try:
        grown = resident_mib(gateway) - before
        assert sum(len(peer.refused) for peer in peers) == expected, "refused at their headers"
        assert grown <= bound_mib
        if key:
            with pytest.raises(grpc.aio.AioRpcError) as full:
                await tokenised(address)
            assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, "half-sent calls are counted"
    finally:
        for peer in peers:
            peer.close()
    await until_free(address)
    print(f"Z5 {'with' if key else 'without'} a key: {grown:.0f} MiB")


async def test_z5_messages_far_over_the_limit_are_not_held_until_they_are_whole(
    gateway: ServiceProcess, full: bool
) -> None:
    """gRPC refuses a message for its size when it has all of it: 32 of the largest would be 2 GiB.

    With `--full` a second attack follows, on memory that was given back.
    """
    address = gateway.bound(START_S)["grpc"]
    before = most = resident_mib(gateway)
    for _ in range(2 if full else 1):
        attacking = asyncio.create_task(
            attack(address, literal(*(text.encode() for text in KEY)), message_bytes=64 << 20)
        )
        while not attacking.done():
            most = max(most, resident_mib(gateway))
            await asyncio.sleep(0.01)
        for peer in await attacking:
            peer.close()
    print(f"Z5 with messages of 64 MiB: {most - before:.0f} MiB at most")
    assert most - before <= 1024
    async with asyncio.timeout(30.0):
        while resident_mib(gateway) - before > 256:
            await asyncio.sleep(0.05)
    await until_free(address)


class HalfSentHttp:
    """One request over HTTP/1.1 whose body is sent as far as the gateway takes it, all but its last part.

    Reads and writes know nothing of one another: a refusal can be read when the rest can no longer be written.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._tasks: list[asyncio.Task[None]] = []
        self.accepted = 0
        self.status = b""
        self.gone = False

    async def run(self, headers: bytes, body_bytes: int, quiet_s: float, answered: Callable[[], bool]) -> None:
        """Sends until the gateway has `answered` and has taken nothing for a while."""
        start = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" + headers
        if body_bytes > MAX_CLIENT_MESSAGE_BYTES:
            start += b"transfer-encoding: chunked\r\n\r\n%x\r\n" % body_bytes
        else:
            start += b"content-length: %d\r\n\r\n" % body_bytes
        self._tasks = [asyncio.create_task(one) for one in (self._read(), self._send(start, body_bytes - PIECE))]
        before, end = -1, time.monotonic() + LONGEST_S
        while before != self.accepted or not (answered() or time.monotonic() > end):
            before = self.accepted
            await asyncio.sleep(quiet_s)

    async def close(self) -> None:
        """Goes without a word."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._connection.close()

    async def _read(self) -> None:
        got, loop = b"", asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            while b"\r\n" not in got:
                more = await loop.sock_recv(self._connection, PIECE)
                if not more:
                    break
                got += more
        self.status, self.gone = got.split(b" ")[1] if b"\r\n" in got else b"", True

    async def _send(self, start: bytes, size: int) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(self._connection, start)
            while self.accepted < size:
                await loop.sock_sendall(self._connection, ZEROS)
                self.accepted += PIECE


async def attack_http(address: str, headers: bytes, body_bytes: int, refused: int) -> list[HalfSentHttp]:
    """As many requests as the attack over HTTP/2 has, a connection each; so many are to be refused."""
    host, _, port = address.rpartition(":")
    loop, peers = asyncio.get_running_loop(), []
    for _ in range(CONNECTIONS * STREAMS):
        connection = socket.socket()
        connection.setblocking(False)
        await loop.sock_connect(connection, (host, int(port)))
        peers.append(HalfSentHttp(connection))

    def answered() -> bool:
        return sum(peer.gone for peer in peers) >= refused

    await asyncio.gather(*(peer.run(headers, body_bytes, QUIET_S, answered) for peer in peers))
    return peers


@pytest.mark.parametrize(
    ("key", "bound_mib", "body_bytes"),
    [
        pytest.param(False, 32, MAX_CLIENT_MESSAGE_BYTES, id="without a key-4 MiB"),
        pytest.param(True, 256, 64 << 20, id="with a key-64 MiB"),
        pytest.param(False, 32, 64 << 20, id="without a key-64 MiB", marks=pytest.mark.whole),
        pytest.param(True, 256, MAX_CLIENT_MESSAGE_BYTES, id="with a key-4 MiB", marks=pytest.mark.whole),
    ],
)
async def test_z5_half_sent_bodies_take_little_memory(
    gateway: ServiceProcess, key: bool, bound_mib: int, body_bytes: int
) -> None:
    bound = gateway.bound(START_S)
    assert await tokenised(bound["grpc"])
    before = most = resident_mib(gateway)
    headers = b"authorization: Bearer key\r\n" if key else b""
    # A body that comes too slowly (408) or is too large (413) gives its place to the next one: on a busy machine the
    # attack lasts long enough for that, so only the number that still hold a place is known.
    statuses, holding = ({b"429", b"408"}, 32) if key else ({b"401"}, 0)
    if key and body_bytes > MAX_CLIENT_MESSAGE_BYTES:
        statuses, holding = {*statuses, b"413"}, 0
    expected = CONNECTIONS * STREAMS - holding
    attacking = asyncio.create_task(attack_http(bound["http"], headers, body_bytes, expected))
    late_s, looked = 0.0, time.monotonic()
    while not attacking.done():
        most = max(most, resident_mib(gateway))
        await asyncio.sleep(0.01)
        late_s, looked = max(late_s, time.monotonic() - looked), time.monotonic()
    peers = await attacking
    try:
        assert sum(peer.gone for peer in peers) >= expected, "refused"
        assert late_s > LATE_S or sum(peer.status in statuses for peer in peers) >= expected, "and told so"
        assert all(peer.status in {*statuses, b""} for peer in peers), "none is served"
        if holding:
            no_place = sum(peer.status == b"429" for peer in peers)
            assert no_place >= expected - holding, "each place is given on once at most"
        assert most - before <= bound_mib
    finally:
        for peer in peers:
            await peer.close()
    await until_free(bound["grpc"])
    print(f"Z5 over HTTP {'with' if key else 'without'} a key: {most - before:.0f} MiB")


async def until_free(address: str) -> None:
    """A call whose client is gone is counted no more."""
    async with asyncio.timeout(30.0):
        while True:
            try:
                assert await tokenised(address)
                return
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                await asyncio.sleep(0.05)
