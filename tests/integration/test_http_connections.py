"""How many connections there may be over HTTP, who makes room, and what happens when there is no descriptor left."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from services.common.serving.addresses import address_of
from services.gateway.http.server import connections, listener
from services.gateway.http.server.connections import Connections
from services.gateway.http.server.limits import CHUNKS
from services.gateway.http.server.wire import Wire
from tests.integration.http_stack import COMPLETIONS, MODELS, completion, serving
from tests.integration.test_gateway_security import tenants  # noqa: F401 - a fixture
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Http, connected
from tests.unit.common.serving.certificates import Authority


async def closed(one: Http) -> bool:
    """Whether the other end has hung up, in whatever way."""
    try:
        return not await one.reader.read(1)
    except ConnectionError:
        return True


@pytest.mark.parametrize(("key", "status"), [("", 401), ("key-one", 400)])
async def test_a_body_in_tiny_chunks_is_not_worked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    status: int,
    tenants: str,  # noqa: F811
) -> None:
    events = 0
    following = Wire.next_event

    def counted(wire: Wire) -> Any:
        nonlocal events
        events += 1
        return following(wire)

    monkeypatch.setattr(Wire, "next_event", counted)
    headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
    async with serving(tmp_path, tenants=tenants) as (_, http), connected(http.address) as one:
        one.begin(COMPLETIONS, b"", headers | ({"authorization": f"Bearer {key}"} if key else {}))
        if not key:
            assert (await one.reply_to_raw()).status == status, "nobody waits for the body"
        with suppress(ConnectionError):
            for _ in range(20):
                one.writer.write(b"1\r\n \r\n" * 10_000)
                await one.writer.drain()
        if key:
            assert (await one.reply_to_raw()).status == status
        assert await closed(one)
        assert events <= (2 * CHUNKS if key else 10)


async def test_an_event_does_not_wait_for_the_client_to_confirm_the_one_before(tmp_path: Path) -> None:
    async with serving(tmp_path) as (stack, http), connected(http.address):
        edge: Any = stack.app._http
        open_now = edge._listener._state.connections
        await until(lambda: len(open_now) == 1)
        (one,) = open_now
        assert one.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("key", ["", "key-one"])
async def test_idle_connections_make_room_and_running_streams_never(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    tenants: str,  # noqa: F811
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 6)
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    access = {"tenants": tenants} if key else {}
    async with serving(tmp_path, [FakeTarget(pace_s=0.02)], **access) as (_, http), AsyncExitStack() as stack:
        running = await stack.enter_async_context(connected(http.address))
        body = b'{"model":"fake","prompt":"hello","seed":5,"max_tokens":200,"stream":true}'
        await running.send("POST", COMPLETIONS, body, headers)
        assert (await running.head()).status_code == 200
        idle = [await stack.enter_async_context(connected(http.address)) for _ in range(40)]
        async with asyncio.timeout(30.0):
            for one in idle[:30]:
                assert await closed(one), "the oldest make room"
            await idle[-1].send("GET", MODELS, headers=headers)
            assert (await idle[-1].reply()).status == 200
        events = [event async for event in running.events()]
        assert events[-1] == "[DONE]"


async def test_where_none_is_idle_a_connection_waits_and_is_not_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    target = FakeTarget()
    target.hold()
    async with serving(tmp_path, [target]) as (_, http):
        answers = []
        for number in range(1, 3):
            answers.append(asyncio.create_task(http.post(COMPLETIONS, completion(max_tokens=100))))
            await until(lambda number=number: target.active == number)
        later = asyncio.create_task(http.get(MODELS))
        target.go_on()
        assert [(await answer).status for answer in answers] == [200, 200]
        assert (await later).status == 200


async def test_handshakes_that_never_end_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 4)
    authority = Authority.make()
    context = ssl.create_default_context(cafile=authority.write(tmp_path / "ca.pem"))
    cert, private = authority.issue(tmp_path / "gateway", "gateway")
    files: dict[str, Any] = {"tls_cert": cert, "tls_key": private}
    async with serving(tmp_path, **files) as (_, http), AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(connected(http.address))
        async with connected(http.address, context) as one:
            await one.send("GET", MODELS)
            assert (await one.reply()).status == 200


async def test_without_a_descriptor_new_connections_wait_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "PAUSE_S", 0.001)
    async with serving(tmp_path) as (_, http):
        loop: Any = asyncio.get_running_loop()
        accept, tries = loop.sock_accept, 0

        async def none_left(listening: Any) -> Any:
            nonlocal tries
            if listening.getsockname()[1] == int(http.address.rpartition(":")[2]) and tries < 50:
                tries += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await accept(listening)

        with caplog.at_level(logging.ERROR):
            assert (await http.get(MODELS)).status == 200  # the wait that is under way accepts this one
            monkeypatch.setattr(loop, "sock_accept", none_left)
            for _ in range(2):
                assert (await http.get(MODELS)).status == 200
        assert tries == 50
        assert [record.message for record in caplog.records if "connections wait" in record.message][1:] == []
        assert "Too many open files" in caplog.text and "Traceback" not in caplog.text


def test_the_address_that_has_most_idle_connections_makes_room_first() -> None:
    ended: list[str] = []
    seats = Connections(8)

    def seat(name: str, address: str) -> Any:
        return seats.seat(address, lambda: ended.append(name))

    known = seat("known", "a")
    known.tell(busy=True)
    known.known = True
    known.tell(busy=False)
    seat("a", "a")
    many = [seat(f"b{number}", "b") for number in range(3)]
    many[0].tell(busy=True)
    for _ in range(4):
        seats.evict()
    assert ended[:1] == ["b1"] and sorted(ended[1:3]) == ["a", "b2"] and ended[3:] == ["known"]
    many[0].tell(busy=False)
    seats.evict()
    assert ended[4:] == ["b0"]


def test_a_connection_whose_request_may_be_on_its_way_ends_for_no_descriptor() -> None:
    ended: list[str] = []
    seats = Connections(8)
    one = seats.seat("a", lambda: ended.append("one"))
    seats.evict(idle_s=1e9)
    assert ended == []
    one.tell(busy=True)
    seats.evict(idle_s=0.0)
    assert ended == [], "its request is served"
    one.tell(busy=False)
    seats.evict(idle_s=0.0)
    assert ended == ["one"]


async def test_one_address_has_half_of_the_seats() -> None:
    ended: list[int] = []
    seats = Connections(6)
    for number in range(5):
        seats.seat("a", lambda number=number: ended.append(number))  # type: ignore[misc]
    assert ended == [0, 1], "the oldest go"
    seats.seat("b", lambda: ended.append(-1))
    assert ended == [0, 1]


def test_an_ipv6_client_counts_by_its_network() -> None:
    assert address_of(("192.0.2.1", 5)) == "192.0.2.1"
    assert address_of(("2001:db8::1:2:3:4", 5, 0, 0)) == address_of(("2001:db8::ffff", 6, 0, 0)) == "2001:db8::"
    assert address_of(("fe80::1%eth0", 5, 0, 2)) == "fe80::"
    assert address_of("") == ""
