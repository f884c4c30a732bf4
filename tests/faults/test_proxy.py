"""The fault proxy itself, against a server that echoes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from services.common.serving.channel import connect
from tests.faults.proxy import FaultProxy
from tests.support.ports import free_port

WAIT_S = 30.0
DATA = os.urandom(5000)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def _proxied() -> AsyncIterator[tuple[FaultProxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    proxy = FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1])
    host, port = (await proxy.start()).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield proxy, reader, writer
    finally:
        writer.close()
        await proxy.stop()
        server.close()


async def _round_trip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = DATA) -> float:
    start = time.monotonic()
    writer.write(data)
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(data)) == data
    return time.monotonic() - start


async def test_bytes_pass_unchanged_whatever_the_slices() -> None:
    async with _proxied() as (proxy, reader, writer):
        await _round_trip(reader, writer)
        for size in (1, 7, 4999):
            proxy.set(slice_bytes=size)
            await _round_trip(reader, writer)


async def test_the_end_of_a_stream_passes_too() -> None:
    async with _proxied() as (_, reader, writer):
        writer.write(b"last")
        writer.write_eof()
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b"last"


async def test_latency_and_bandwidth_take_at_least_their_time() -> None:
    async with _proxied() as (proxy, reader, writer):
        proxy.set(latency_s=0.1)
        assert await _round_trip(reader, writer) >= 0.19
        proxy.heal()
        proxy.set(bytes_per_s=50_000.0, slice_bytes=500)
        assert await _round_trip(reader, writer) >= 0.09


@pytest.mark.parametrize("direction", ["hold_to_server", "hold_to_client"])
async def test_a_held_direction_delivers_everything_once_it_heals(direction: str) -> None:
    async with _proxied() as (proxy, reader, writer):
        await _round_trip(reader, writer)
        proxy.set(**{direction: True})
        writer.write(DATA)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.readexactly(1)
        proxy.heal()
        async with asyncio.timeout(WAIT_S):
            assert await reader.readexactly(len(DATA)) == DATA


async def test_a_reset_is_seen_as_one_and_new_connections_work() -> None:
    async with _proxied() as (proxy, reader, writer):
        await _round_trip(reader, writer)
        assert proxy.reset() == 2
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(WAIT_S):
                await reader.readexactly(1)
        host, port = proxy.address.split(":")
        again_reader, again_writer = await asyncio.open_connection(host, int(port))
        await _round_trip(again_reader, again_writer)
        assert proxy.connections == 2
        again_writer.close()


async def test_a_server_that_is_gone_ends_the_connection() -> None:
    proxy = FaultProxy("127.0.0.1", free_port())
    host, port = (await proxy.start()).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(WAIT_S):
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    writer.close()
    await proxy.stop()


async def test_our_channels_connect_over_a_slow_link() -> None:
    server = grpc.aio.server()
    proxy = FaultProxy("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    address = await proxy.start()
    proxy.set(latency_s=0.3)
    async with connect(address) as channel, asyncio.timeout(WAIT_S):
        await channel.channel_ready()
    assert proxy.connections < 3, "attempts were given up before the link could answer"
    await proxy.stop()
    await server.stop(0.0)
