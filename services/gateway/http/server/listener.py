"""Listens for HTTP on the event loop that gRPC has."""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import h11
from uvicorn.config import Config
from uvicorn.server import ServerState

from services.common.serving.addresses import address_of
from services.common.serving.rotating_tls import RotatingContext
from services.common.serving.server import BindError
from services.common.serving.tls import TlsFiles
from services.gateway.http.server.connection import Connection, Refused, Serve
from services.gateway.http.server.connections import Connections, most_connections
from services.gateway.http.server.limits import BACKLOG, HANDSHAKE_S, HEADER_BYTES, IDLE_S, SEND_BUFFER_BYTES
from services.gateway.http.server.turns import Turns

logger = logging.getLogger(__name__)

LOOK_S = 0.02
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE_S = 0.1
"""Time until another connection is accepted when the system has no descriptor or memory for one."""

FRESH_S = 1.0
"""A connection younger than that ends for no other one when there is no descriptor: its request may be on its way."""

QUIET_S = 60.0
"""Time without another line about that."""


class Listener:
    """One address; connections are uvicorn's, accepting them, signals and the loop are the process's own."""

    def __init__(
        self, address: str, serve: Serve, refused: Refused, dropped: Callable[[str], None], tls: TlsFiles
    ) -> None:
        """Binds nothing yet; `refused` is told of requests that cannot even be read, `dropped` of connections.

        Raises:
            OSError: a file of `tls` cannot be used.
        """
        self._address = address
        self._serve, self._refused = serve, refused
        self._context = RotatingContext.of(tls, "http/1.1") if tls else None
        self._state = ServerState()
        self._turns = Turns()
        self._open = Connections(most_connections(), dropped)
        self._config = Config(
            serve,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=IDLE_S,
            h11_max_incomplete_event_size=HEADER_BYTES,
            reset_contextvars=True,
        )
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._arriving: set[asyncio.Task[None]] = set()
        self._said = -QUIET_S

    async def start(self) -> str:
        """Listens; returns the address as bound.

        Raises:
            BindError: it cannot be bound.
        """
        host, _, port = self._address.rpartition(":")
        self._config.load()
        try:
            self._sockets = await _bound(host.strip("[]"), int(port))
        except (OSError, ValueError) as error:
            raise BindError(f"http: cannot bind {self._address}: {error}") from None
        self._accepting = [asyncio.create_task(self._accept(one)) for one in self._sockets]
        return f"{host}:{self._sockets[0].getsockname()[1]}"

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, lets requests end within the grace, and then ends them."""
        await _ended(self._accepting)
        for each in self._sockets:
            each.close()
        for connection in [*self._state.connections]:
            with suppress(h11.LocalProtocolError):  # it ends by itself
                connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._state.tasks:
                    await asyncio.sleep(LOOK_S)
        await _ended([*self._state.tasks, *self._arriving])
        for connection in [*self._state.connections]:
            connection.transport.abort()

    async def _accept(self, listening: socket.socket) -> None:
        """Accepts one connection a turn of the loop, so that many that come at once hold nobody up."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                arrived, peer = await loop.sock_accept(listening)
            except OSError as error:
                await self._wait(error)
                continue
            with _closed_when_cancelled(arrived):
                await self._open.room()
            task = asyncio.create_task(self._arrive(arrived, address_of(peer)))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)
            await asyncio.sleep(0)

    async def _wait(self, error: OSError) -> None:
        """Lets connections wait in the kernel while the system has nothing left for them."""
        if error.errno not in EXHAUSTED:  # the client went while it was accepted
            return
        if time.monotonic() - self._said >= QUIET_S:
            self._said = time.monotonic()
            logger.error("http: new connections wait, %d are open: %s", len(self._open), error)
        self._open.evict(FRESH_S)
        await asyncio.sleep(PAUSE_S)

    async def _arrive(self, arrived: socket.socket, address: str) -> None:
        """Makes a connection of a socket, after the handshake where there is one; it can be evicted before."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        seat = self._open.seat(address, task.cancel)
        try:
            await loop.connect_accepted_socket(
                lambda: Connection(self._serve, self._refused, self._config, self._state, seat, self._turns),
                arrived,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S if self._context else None,
            )
        except OSError:  # the client went, or speaks no TLS
            seat.leave()
        except BaseException:
            seat.leave()
            raise


@contextmanager
def _closed_when_cancelled(arrived: socket.socket) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        arrived.close()
        raise


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of a host, all on one port.

    Raises:
        OSError: one cannot be bound.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, where in dict.fromkeys((one[0], one[4]) for one in found):
            at = port or (sockets[0].getsockname()[1] if sockets else 0)
            both = host == "::"  # as elsewhere: IPv4 as well, where the machine has it
            sockets.append(
                socket.create_server((where[0], at, *where[2:]), family=family, backlog=BACKLOG, dualstack_ipv6=both)
            )
            sockets[-1].setblocking(False)
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            # Connections inherit it. Without it an event waits 40 ms for the client to confirm the headers.
            sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
