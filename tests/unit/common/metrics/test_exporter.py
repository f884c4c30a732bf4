"""The page of metrics is answered whoever else asks: connections, threads, bytes and time are bounded."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from services.common.metrics import exporter
from services.common.metrics.exporter import CONNECTIONS, CONNECTIONS_OF_ONE, HEAD_BYTES, Exporter
from services.common.serving.addresses import own_names

WAIT_S = 30.0


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporter]:
    """An exporter whose connections end after some seconds, in which any machine writes a page."""
    monkeypatch.setattr(exporter, "LONGEST_S", 3.0)
    registry = CollectorRegistry()
    Gauge("probe", "A value.", registry=registry).set(7)
    made = Exporter(registry, "127.0.0.1", 0)
    yield made
    made.close()


def page(served: Exporter) -> str:
    with urllib.request.urlopen(f"http://{served.address}/metrics", timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def connected(served: Exporter) -> socket.socket:
    host, _, port = served.address.rpartition(":")
    return socket.create_connection((host, int(port)), WAIT_S)


def ended(connection: socket.socket) -> bool:
    """Waits until the server ends it."""
    try:
        return not connection.recv(1 << 16)
    except ConnectionError:
        return True


def test_a_request_that_never_ends_is_ended_and_others_are_answered(served: Exporter) -> None:
    slow = [connected(served) for _ in range(CONNECTIONS_OF_ONE // 2)]
    for each in slow:
        each.sendall(b"GET /metrics HTTP/1.1\r\nx: ")
    assert "probe 7.0" in page(served)
    assert all(ended(each) for each in slow)


def test_many_connections_take_few_threads_and_the_page_is_answered(served: Exporter) -> None:
    before = threading.active_count()
    many = [connected(served) for _ in range(3 * CONNECTIONS)]
    assert "probe 7.0" in page(served)
    end = time.monotonic() + WAIT_S  # those of connections that were ended go a moment later
    while threading.active_count() - before > CONNECTIONS_OF_ONE + 1:
        assert time.monotonic() < end
        time.sleep(0.01)
    for each in many:
        each.close()


def test_idle_connections_of_several_addresses_make_room_at_once(
    served: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own time is longer than anybody waits here."""
    monkeypatch.setattr(exporter, "LONGEST_S", 100 * WAIT_S)
    host, _, port = served.address.rpartition(":")
    idle = [
        socket.create_connection((host, int(port)), WAIT_S, (f"127.0.0.{number}", 0))
        for number in range(2, 3 + CONNECTIONS // CONNECTIONS_OF_ONE)
        for _ in range(CONNECTIONS_OF_ONE)
    ]
    assert "probe 7.0" in page(served)
    for each in idle:
        each.close()


def test_connections_without_a_request_wait_for_no_turn_of_a_page(
    served: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "_PACE_S", 2.0)
    many = [connected(served) for _ in range(3 * CONNECTIONS)]  # with a turn each they would take minutes
    assert "probe 7.0" in page(served)
    for each in many:
        each.close()


def test_pages_are_held_apart(served: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_PACE_S", 0.1)
    began = time.monotonic()
    for _ in range(4):
        assert "probe 7.0" in page(served)
    assert time.monotonic() - began >= 0.3


def test_a_request_that_is_too_long_is_not_read(served: Exporter) -> None:
    one = connected(served)
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            one.sendall(b"x" * HEAD_BYTES)
    assert "probe 7.0" in page(served)


def test_a_client_that_never_reads_is_ended(served: Exporter) -> None:
    one = connected(served)
    one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert "probe 7.0" in page(served)
    assert b"probe 7.0" in b"".join(iter(lambda: one.recv(1 << 16), b"")), "headers and page may come apart"


@pytest.mark.parametrize(
    ("bound", "host", "answered"),
    [
        ("127.0.0.1", "localhost:9", True), ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "[::1]:9", True),
        ("127.0.0.1", "", True), ("127.0.0.1", "LOCALHOST.", True), ("127.0.0.1", "attacker.example", False),
        ("127.0.0.1", "127.0.0.1.attacker.example:80", False), ("127.0.0.1", "localhost@attacker.example", False),
        ("127.0.0.1", "attacker.example:127.0.0.1", False), ("0.0.0.0", "gateway.svc:9090", True),
    ],
)  # fmt: skip
def test_on_loopback_no_foreign_name_is_answered(bound: str, host: str, answered: bool) -> None:
    made = Exporter(CollectorRegistry(), bound, 0, own_names(bound))
    try:
        with socket.create_connection(("127.0.0.1", int(made.address.rpartition(":")[2])), WAIT_S) as one:
            stated = f"Host: {host}\r\n" if host else ""
            one.sendall(f"GET /metrics HTTP/1.1\r\n{stated}\r\n".encode())
            status = one.makefile("rb").readline()
    finally:
        made.close()
    assert status.split()[1] == (b"200" if answered else b"421")
