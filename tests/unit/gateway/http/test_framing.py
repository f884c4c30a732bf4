"""What comes on a connection is bounded in work, and framed in one way only, before a request is known."""

from __future__ import annotations

import h11
import pytest

from services.gateway.http.schema.errors import RefusedError
from services.gateway.http.server.hosts import Hosts
from services.gateway.http.server.limits import CHUNK_BYTES, CHUNKS, HEADER_BYTES, HEADERS
from services.gateway.http.server.wire import ONCE, Wire
from tests.support.cases import each

LINE = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


def fed(data: bytes, step: int = 1 << 18) -> tuple[int, RefusedError | None]:
    """Events that bytes make, so many at a time, and why they are refused."""
    wire, events = Wire(), 0
    for at in range(0, len(data), step):
        wire.receive_data(data[at : at + step])
        try:
            while (event := wire.next_event()) not in (h11.NEED_DATA, h11.PAUSED) or wire.over:
                assert not isinstance(event, h11.ConnectionClosed)
                events += not wire.over
                if wire.over:
                    wire.begin_turn()
        except h11.RemoteProtocolError:
            assert wire.fault is not None
            return events, wire.fault
    return events, None


@each("step", [1, 7, 1 << 18])
@each(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\nY: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n\tb\r\n\r\n", 400),
        (LINE + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (LINE + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (LINE + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400),
        (LINE + b"Transfer-Encoding: gzip\r\n\r\n", 400),
        (LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (LINE + b"Transfer-Encoding : chunked\r\n\r\n", 400),
        (LINE + b"Host: other\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: a\r\n\r\n", 400),
        *((b"GET / HTTP/%b\r\nHost: localhost\r\n\r\n" % version, 400) for version in (b"0.9", b"1.2", b"2.0", b"9.9")),
        *((LINE + name + b": a\r\nX: y\r\n" + name + b": b\r\n\r\n", 400) for name in ONCE),
        (LINE + b"a:\r\n" * (HEADERS + 1) + b"\r\n", 431),
        (LINE + b"a: " + b"b" * HEADER_BYTES + b"\r\n\r\n", 431),
        (LINE + b"a: " + b"b" * HEADER_BYTES, 431),
    ],
)
def test_heads_that_are_ambiguous_or_large_are_refused(head: bytes, status: int, step: int) -> None:
    events, fault = fed(head, step)
    assert fault is not None and fault.status == status
    assert not events
    assert len(fault.message) < 300


def test_a_head_within_the_bounds_is_taken_however_it_is_cut() -> None:
    head = LINE + b"a: b\r\n" * (HEADERS - 2) + b"Content-Length: 5\r\n\r\nhello"
    for step in (1, 2, 3, 1000):
        assert fed(head, step)[1] is None


@pytest.mark.parametrize(
    ("target", "host", "path"),
    [
        (b"/v1/models?a=b", b"localhost", b"/v1/models?a=b"),
        (b"http://other:80/v1/models?a=http://b", b"other:80", b"/v1/models?a=http://b"),
        (b"HTTPS://[::1]:8000/v1/models#part", b"[::1]:8000", b"/v1/models"),
        (b"http://other", b"other", b"/"),
        (b"http://other?a", b"other", b"/?a"),
        (b"http://", b"", b"/"),
        (b"*", b"localhost", b"*"),
        (b"//other/v1/models", b"localhost", b"//other/v1/models"),
    ],
)
def test_a_whole_address_as_target_is_its_path_at_its_host(target: bytes, host: bytes, path: bytes) -> None:
    """What is checked against DNS rebinding is the name that was asked for, whatever Host says beside it."""
    wire = Wire()
    wire.receive_data(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n")
    request = wire.next_event()
    assert (request.target, dict(request.headers)[b"host"]) == (path, host)
    assert dict(request.headers)[b"x"] == b"y"
    assert isinstance(wire.next_event(), h11.EndOfMessage)


def test_headers_behind_a_body_are_as_few_as_those_before_it() -> None:
    chunked = LINE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    assert fed(chunked + b"a: b\r\n" * HEADERS + b"\r\n")[1] is None
    for many in (HEADERS + 1, 10_000):
        fault = fed(chunked + b"a: b\r\n" * many + b"\r\n")[1]
        assert fault is not None and fault.status == 431


@pytest.mark.parametrize("step", [5, 1 << 18])
def test_small_chunks_are_counted_wherever_they_come(step: int) -> None:
    chunked = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
    events, fault = fed(chunked + b"1\r\n \r\n" * 100_000, step)
    assert fault is not None and "chunks" in fault.message
    assert events <= 2 * CHUNKS, "work ends with the bound"
    fair = b"%x\r\n%b\r\n" % (CHUNK_BYTES, b" " * CHUNK_BYTES)
    assert fed(chunked + fair * 20 * CHUNKS + b"0\r\n\r\n", 1 << 18)[1] is None, "4 MiB of moderate chunks are a body"
    assert fed(chunked + b"1;" + b"x" * HEADER_BYTES * 2, 1 << 18)[1] is not None


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "127.1.2.3:0"])
def test_on_loopback_only_names_of_loopback_are_served(address: str) -> None:
    hosts = Hosts(address, ("llm.example",))
    for name in ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "a.localhost", "llm.example:1", None):
        hosts.check(name)
    for name in ("attacker.example", "attacker.example:8000", "", "127.0.0.1.attacker.example", "localhost.evil", "0"):
        with pytest.raises(RefusedError) as error:
            hosts.check(name)
        assert error.value.status == 421
        assert "http_hosts" in error.value.message
    Hosts(address, ("*",)).check("attacker.example")


@pytest.mark.parametrize("address", ["0.0.0.0:8000", "[::]:8000", "10.0.0.1:80", "llm.example:80", ":80"])
def test_elsewhere_every_name_is_served(address: str) -> None:
    Hosts(address, ()).check("llm.example")
