"""Serves metrics over HTTP from threads of its own, few and not for long, whoever asks."""

import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from services.common.metrics.vllm_names import VllmNames

CONNECTIONS = 32
"""Open at once, each with a thread; for another one the oldest of the address that has most ends."""

CONNECTIONS_OF_ONE = 8
"""Of one address; its oldest one ends for another."""

LONGEST_S = 5.0
"""Time of a connection from its first to its last byte."""

HEAD_BYTES = 8192
"""Request line and headers."""

OPEN, PLAIN = "application/openmetrics-text", "text/plain"

_LOOK_S = 0.05
"""Seconds between two looks whether the server must end; with the library's default every stop takes half a second."""

_PACE_S = 0.02
"""Between two pages: one takes milliseconds, in which nothing else of the process runs."""

_ACCEPT_S = 0.004
"""Between two connections, which take a thread each: hundreds that wait in the kernel hold nobody up for a second."""

_SCARCE_S = 0.25
"""Until the next try when there is no descriptor or memory for a connection."""


class Exporter:
    """Answers scrapes from construction until `close`; `address` is host:port as bound.

    `named` judges the name by which it is asked, where the header Host states one.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self, registry: CollectorRegistry, host: str, port: int, named: Callable[[str], bool] = lambda host: True
    ) -> None:
        plain = host.strip("[]")
        kind = _Server6 if ":" in plain else _Server
        self._server = make_server(plain, port, _pages(registry, named), kind, _Handler)
        self.address = f"{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the server; waits for the present look, not for scrapes that run."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _pages(registry: CollectorRegistry, named: Callable[[str], bool]) -> Any:
    """Ours at every path but that of vLLM's names; none to who asks by a foreign name."""
    ours, theirs = make_wsgi_app(registry), make_wsgi_app(cast(CollectorRegistry, VllmNames(registry)))
    pace = _Pace()

    def answer(environ: Any, start_response: Any) -> Any:
        if "HTTP_HOST" in environ and not named(environ["HTTP_HOST"]):
            start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"the header Host states no name of this machine\n"]
        environ["HTTP_ACCEPT"] = form_of(environ.get("HTTP_ACCEPT", ""))
        pace.take()
        return (theirs if environ["PATH_INFO"].rstrip("/") == "/metrics/vllm" else ours)(environ, start_response)

    return answer


def form_of(accept: str) -> str:
    """The header Accept as the library shall read it: the first form that both know, or plain text.

    The library writes vLLM's colons as underscores for whoever does not ask it otherwise, as Prometheus 2 does not, and
    fails at versions that are no numbers. None of our names wants escaping.
    """
    for each in accept.split(","):
        kind = each.partition(";")[0].strip().lower()
        if kind == OPEN:
            return f"{OPEN}; version=1.0.0; escaping=allow-utf-8"
        if kind == PLAIN:
            break
    return PLAIN


class _Pace:
    """Holds pages apart, one after the other."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._next = time.monotonic()

    def take(self) -> None:
        """Waits for the next turn."""
        with self._turn:
            time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + _PACE_S


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for each scrape, so that a scraper that stalls stops no other one; no thread outlives the process."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._open: dict[socket.socket, tuple[str, float]] = {}
        self._changing = threading.Lock()
        super().__init__(*arguments, **named)

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection, when there is room for one."""
        while len(self._open) >= CONNECTIONS:
            self._make_room()
            time.sleep(_ACCEPT_S)
        try:
            return super().get_request()
        except OSError:
            time.sleep(_SCARCE_S)
            raise

    def _make_room(self) -> None:
        """Ends the oldest connection of the address that has most."""
        of: dict[str, list[socket.socket]] = {}
        with self._changing:
            for each, (address, _) in self._open.items():
                of.setdefault(address, []).append(each)
        for each in max(of.values(), key=len, default=[])[:1]:
            _end(each)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts its thread; the oldest of an address that has too many ends."""
        address = str(client_address[0])
        with self._changing:
            theirs = [each for each, (of, _) in self._open.items() if of == address]
            self._open[request] = (address, time.monotonic())
        for each in theirs[: len(theirs) - CONNECTIONS_OF_ONE + 1] if len(theirs) >= CONNECTIONS_OF_ONE else ():
            _end(each)
        super().process_request(request, client_address)
        time.sleep(_ACCEPT_S)

    def service_actions(self) -> None:
        """Ends connections that take too long."""
        end = time.monotonic() - LONGEST_S
        with self._changing:
            late = [each for each, (_, began) in self._open.items() if began < end]
        for each in late:
            _end(each)

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went, or was ended, is no error of ours."""


class _Server6(_Server):
    """The same on an address of IPv6; the one that means all of them takes IPv4 as well."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        """Binds."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, self.server_address[0] != "::")
        super().server_bind()


class _Handler(WSGIRequestHandler):
    """Reads no more than a request needs, and logs no scrapes."""

    def setup(self) -> None:
        """Reads the request."""
        super().setup()
        self.rfile = io.BufferedReader(io.BytesIO(self._head()))

    def _head(self) -> bytes:
        """The request line and headers; nothing when they are too long, or do not come."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.connection.recv(HEAD_BYTES)
            data += piece
            if not piece or len(data) > HEAD_BYTES:
                return b""
        return data

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Drops the line."""


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
