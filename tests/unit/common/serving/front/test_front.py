"""A front passes bytes on both ways, and ends what it must, before a stand-in for gRPC that echoes."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from services.common.serving.front import relay as relay_module
from services.common.serving.front.doorman import REFUSALS, STRANGERS, Doorman
from services.common.serving.front.front import Front
from services.common.serving.front.relay import STRANGER_S, UNPROVEN_BYTES
from tests.faults.http2 import END_HEADERS, HEADERS, METHOD, START, frame, literal, opening
from tests.support.hostile_frames import bombs, call

WAIT_S = 30.0
KEY = literal(b"authorization", b"Bearer key")


class Served:
    """A front, its address, and how often it was connected through."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.connections = 0
        self.peers: list[str] = []
        self.address = ""

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.peers.append(f"unix:{writer.get_extra_info('peername')}")
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.address.rpartition(":")
        return await asyncio.open_connection(host, int(port))


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    made = Served(Front({"key": "tenant"}.get))
    server = await asyncio.start_unix_server(made.echo, made.front.inner.removeprefix("unix:"))
    made.address = made.front.listen("127.0.0.1:0")
    yield made
    made.front.close()
    server.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the connection ends."""
    async with asyncio.timeout(WAIT_S):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            return True
    return True


async def test_bytes_pass_both_ways_as_they_are(served: Served) -> None:
    reader, writer = await served.connect()
    sent = START + call(1, opening(METHOD, KEY)) + frame(0, 0, 1, bytes(16_000)) * 200
    writer.write(sent)
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(sent)) == sent
    writer.close()
    assert served.connections == 1


async def test_what_is_no_http2_never_reaches_grpc(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await ended(reader)
    assert not served.connections


async def test_headers_that_expand_never_reach_grpc(served: Served) -> None:
    for _, block in bombs():
        reader, writer = await served.connect()
        writer.write(START)
        await reader.readexactly(len(START))
        writer.write(call(1, block))
        async with asyncio.timeout(WAIT_S):
            assert not await reader.read(), "nothing of it came back"


async def test_calls_without_a_key_pass_some_at_a_time_and_then_end_the_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still they never pass all at once; what is on its way has as long as it takes here."""
    monkeypatch.setattr(served.front._doorman._strange_calls, "_clock", lambda: 0.0)
    monkeypatch.setattr(relay_module, "LINGER_S", 2 * STRANGER_S)
    reader, writer = await served.connect()
    one = frame(HEADERS, END_HEADERS, 1, opening(METHOD))
    writer.write(START + one * (REFUSALS + 1))
    passed = START + one * REFUSALS
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(passed)) == passed
        (relay,) = served.front._doorman.relays
        while relay._limit is None or relay._limit.when() < asyncio.get_running_loop().time() + STRANGER_S:
            await asyncio.sleep(0.01)
        relay._wait(0.0)
        assert not await reader.read(), "nothing more came"


async def test_hundreds_of_idle_connections_of_an_address_refuse_none_that_asks_behind_them(served: Served) -> None:
    idle = [await served.connect() for _ in range(2 * STRANGERS)]
    reader, writer = await served.connect()
    sent = START + call(1, opening(METHOD, KEY))
    writer.write(sent)
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(sent)) == sent
    for _, each in (*idle, (reader, writer)):
        each.close()


async def test_a_connection_that_makes_room_while_it_waits_is_never_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has sent would be passed on else, for bytes that have come outlive the connection."""
    monkeypatch.setattr(Doorman, "patience", lambda doorman, relay: 0.2)
    reader, writer = await served.connect()
    writer.write(START + call(1, opening(METHOD, KEY)))
    doorman = served.front._doorman
    async with asyncio.timeout(WAIT_S):
        while not doorman.relays:
            await asyncio.sleep(0.01)
    (relay,) = doorman.relays
    doorman.leave(relay)
    relay.abort()
    assert await ended(reader)
    async with asyncio.timeout(WAIT_S):
        while served.front._tasks:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert not served.connections
    writer.close()


class Scarce:
    """A listening socket for whose connections there is no descriptor, twice."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening, self.left = listening, 2

    def accept(self) -> Any:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.listening.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.listening, name)


async def test_without_a_descriptor_one_line_is_logged_and_connections_wait(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    front: Any = served.front
    asyncio.get_running_loop().remove_reader(front._socket)
    front._socket = Scarce(front._socket)
    asyncio.get_running_loop().add_reader(front._socket, front._accept)
    reader, writer = await served.connect()
    writer.write(START)
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(START)) == START
    assert [record.levelno for record in caplog.records if "new connections wait" in record.getMessage()] == [
        logging.ERROR
    ]


@pytest_asyncio.fixture
async def proving() -> AsyncIterator[Served]:
    """A front whose peers must prove who they are."""
    made = Served(Front(proof=True))
    server = await asyncio.start_unix_server(made.echo, made.front.inner.removeprefix("unix:"))
    made.address = made.front.listen("127.0.0.1:0")
    yield made
    made.front.close()
    server.close()


LARGE = call(1, opening(METHOD)) + frame(0, 0, 1, bytes(16_000)) * (UNPROVEN_BYTES // 16_000 + 1)


async def begun(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has reached gRPC."""
    reader, writer = await served.connect()
    writer.write(START)
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(START)) == START
    return reader, writer


async def test_a_peer_may_send_little_until_it_has_proven_who_it_is(proving: Served) -> None:
    """Else each call of a stranger could send all of a large message but its end."""
    reader, writer = await begun(proving)
    other, _ = await begun(proving)
    proving.front.prove(proving.peers[1])
    proving.front.prove("unix:/nobody")
    writer.write(LARGE)
    assert await ended(reader), "another one is known"
    reader, writer = await begun(proving)
    proving.front.prove(proving.peers[2])
    writer.write(LARGE)
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(LARGE)) == LARGE
    assert len(set(proving.peers)) == 3
    assert proving.front.stated(proving.peers[2]) == frozenset(), "without TLS no name is stated"
    assert not other.at_eof()
