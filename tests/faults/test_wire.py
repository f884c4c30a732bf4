"""Z3: peers that do not speak gRPC, or speak it badly. Both servers stay, and a canary's text never changes.

Bursts leave a high-water mark of memory: whole runs judge what is kept of the second half of an attack.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from services.common.serving.tls import TlsFiles, channel_credentials
from tests.faults.answers import request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet
from tests.faults.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    METHOD,
    RST_STREAM,
    START,
    frame,
    literal,
    opening,
)
from tests.integration.gateway_stack import ask_for, harness
from tests.support.fakes_target import FakeTarget
from tests.unit.common.serving.certificates import Authority

pytestmark = pytest.mark.asyncio(loop_scope="session")
SESSION = b"/paceline.v1.TargetService/Session"


def garbage(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(1, 400))


def random_frames(rng: random.Random) -> bytes:
    """A right beginning, then frames of any kind, flags, stream and content."""
    streams, sizes = (0, 1, 2, 3, 2**31 - 1), (0, 4, 8, 60)
    pieces = [
        frame(rng.randrange(12), rng.randrange(256), rng.choice(streams), rng.randbytes(rng.choice(sizes)))
        for _ in range(rng.randint(1, 20))
    ]
    return START + b"".join(pieces)


def broken_call(rng: random.Random) -> bytes:
    """A call whose message is not what its length says."""
    message = bytes((rng.randrange(3),)) + struct.pack(">I", rng.choice((0, 5, 2**31, 2**32 - 1))) + rng.randbytes(20)
    path = rng.choice((METHOD, SESSION, b"/nobody/Nothing", b"", rng.randbytes(9)))
    return START + frame(HEADERS, END_HEADERS, 1, opening(path)) + frame(DATA, rng.choice((0, END_STREAM)), 1, message)


def wide_headers(rng: random.Random) -> bytes:
    """Headers far past every limit, in pieces."""
    pieces = [literal(b"x-%d" % number, b"v" * 8000) for number in range(40)]
    continued = [frame(CONTINUATION, 0, 1, piece) for piece in pieces]
    return START + frame(HEADERS, 0, 1, opening(METHOD)) + b"".join(continued) + frame(CONTINUATION, END_HEADERS, 1)


def half_open(rng: random.Random) -> bytes:
    return START[: rng.randrange(1, len(START))]


KINDS = (garbage, random_frames, broken_call, wide_headers, half_open)


@dataclass
class Peer:
    """A connection that sends whatever it is given; what the server makes of it is the server's affair."""

    address: str

    async def send(self, data: bytes, linger_s: float) -> None:
        host, _, port = self.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(linger_s)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


async def test_z3_what_is_not_grpc_harms_nobody(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    (canary,) = await fleet.expected(1, 60)
    addresses = (fleet.gateway_address, fleet.pairs[0].bound["grpc"])
    count, batch = size(100, 10_000), 500
    gate = asyncio.Semaphore(32)

    async def one(number: int) -> None:
        async with gate:
            await Peer(addresses[number % 2]).send(KINDS[number // 2 % len(KINDS)](rng), rng.choice((0.0, 0.05)))

    for start in range(0, count, batch):
        if start == count // 2:
            await fleet.settle()
        beside = asyncio.create_task(fleet.ask(request(0, 60)))
        await asyncio.gather(*(one(number) for number in range(start, min(start + batch, count))))
        assert same(await beside, canary)
    await fleet.quiet()
    report_counts("connections_that_are_not_grpc", count)


async def test_z3_a_rapid_reset_harms_nobody(
    fleet: Fleet, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """Calls that are opened and reset at once, as fast as the connection takes them."""
    (canary,) = await fleet.expected(1, 60)
    resets, per_connection = size(500, 10_000), 500
    for start in range(0, resets, per_connection):
        if start == resets // 2:
            await fleet.settle()
        for path, address in ((METHOD, fleet.gateway_address), (SESSION, fleet.pairs[0].bound["grpc"])):
            beside = asyncio.create_task(fleet.ask(request(0, 60)))
            calls = [
                frame(HEADERS, END_HEADERS, number, opening(path)) + frame(RST_STREAM, 0, number, struct.pack(">I", 8))
                for number in range(1, 2 * per_connection, 2)
            ]
            await Peer(address).send(START + b"".join(calls), 0.2)
            assert same(await beside, canary)
    assert same(await fleet.ask(request(0, 60)), canary)
    await fleet.quiet()
    report_counts("rapid_resets", 2 * resets)


async def test_z3_tls_refuses_garbage_and_certificates_that_do_not_hold(
    tmp_path: Path, rng: random.Random, size: Size
) -> None:
    authority, stranger = Authority.make(), Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    cert, key = authority.issue(tmp_path / "gateway", "gateway")
    right = TlsFiles(*authority.issue(tmp_path / "client", "client"), ca)
    wrong = {
        "none": TlsFiles(ca=ca),
        "expired": TlsFiles(*authority.issue(tmp_path / "old", "client", days=0), ca),
        "of a stranger": TlsFiles(*stranger.issue(tmp_path / "stranger", "client"), ca),
    }
    target = FakeTarget()
    settings: dict[str, Any] = {"tls_cert": cert, "tls_key": key, "tls_ca": ca}
    async with harness(tmp_path, [target], client=channel_credentials(right), **settings) as one:
        for _ in range(size(30, 1000)):
            kind = rng.choice(KINDS)
            await Peer(one.bound.grpc).send(b"\x16\x03\x01" * rng.randrange(2) + kind(rng), 0.0)
        for name, files in wrong.items():
            async with connect(one.bound.grpc, channel_credentials(files)) as channel:
                stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as denied:
                    async for _ in stub.Generate(ask_for(), timeout=10.0):
                        pass
                assert denied.value.code() is grpc.StatusCode.UNAVAILABLE, name
        assert not target.starts, "nothing was begun for them"
        assert (await one.ask(ask_for())).final is not None
