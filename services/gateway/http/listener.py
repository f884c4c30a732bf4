"""Listens for HTTP on the event loop that gRPC has."""

import asyncio
import socket
from contextlib import suppress

import h11
from uvicorn.config import Config
from uvicorn.server import ServerState

from services.common.serving.server import BindError
from services.common.serving.tls import TlsFiles
from services.gateway.http.connection import Connection, Serve
from services.gateway.http.limits import HANDSHAKE_S, HEADER_BYTES, IDLE_S, SEND_BUFFER_BYTES
from services.gateway.http.rotating_tls import RotatingContext

LOOK_S = 0.02


class Listener:
    """One address; connections are uvicorn's, signals and the loop are the process's own."""

    def __init__(self, address: str, serve: Serve, tls: TlsFiles) -> None:
        """Binds nothing yet.

        Raises:
            OSError: a file of `tls` cannot be used.
        """
        self._address = address
        self._serve = serve
        self._context = RotatingContext.of(tls) if tls else None
        self._state = ServerState()
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
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listens; returns the address as bound.

        Raises:
            BindError: it cannot be bound.
        """
        host, _, port = self._address.rpartition(":")
        self._config.load()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._connection,
                host.strip("[]"),
                int(port),
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S if self._context else None,
                backlog=1024,
            )
        except (OSError, ValueError) as error:
            raise BindError(f"http: cannot bind {self._address}: {error}") from None
        for each in self._server.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, lets requests end within the grace, and then ends them."""
        if self._server is None:
            return
        self._server.close()
        for connection in [*self._state.connections]:
            with suppress(h11.LocalProtocolError):  # it ends by itself
                connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._state.tasks:
                    await asyncio.sleep(LOOK_S)
        tasks = [*self._state.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in [*self._state.connections]:
            connection.transport.abort()

    def _connection(self) -> Connection:
        return Connection(self._serve, self._config, self._state)
