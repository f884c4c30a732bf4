"""One connection of uvicorn, with limits of size, number and time that hold before the caller is known."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from services.gateway.http.limits import BODY_LINGER_S, CONNECTIONS, HEADERS_S, IDLE_S, UNREAD_S

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Serve = Callable[["Connection", Scope, Receive, Send], Awaitable[None]]


class Connection(H11Protocol):
    """Closes when headers take too long or a refused body goes on, and at once when there are too many connections."""

    def __init__(self, serve: Serve, config: Config, state: ServerState) -> None:
        """`serve` handles each request, in a task of its own."""
        super().__init__(config, state, {})
        self.app = partial(serve, self)
        self.lost = False
        self._serving: asyncio.Task[Any] | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._waits_s: float | None = None
        self._unread: asyncio.TimerHandle | None = None

    def serving(self, task: asyncio.Task[Any] | None) -> None:
        """The task to cancel when the client goes; None when its request has ended."""
        self._serving = task

    def abort(self) -> None:
        """Ends the connection and drops what the client has not read."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for headers, or hangs up at once."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self._wait(HEADERS_S)

    def data_received(self, data: bytes) -> None:
        """Headers that came end the wait for them; the first byte of the next ones begins another."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait(HEADERS_S if self.conn.trailing_data[0] else IDLE_S)
        elif self.conn.our_state is not h11.DONE:
            self._wait(None)

    def on_response_complete(self) -> None:
        """Reads a refused body for a moment, because hanging up at once would drop the answer on its way."""
        unread = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        self._wait(BODY_LINGER_S if unread else None)

    def pause_writing(self) -> None:
        """The client does not read; it has a while to begin."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.abort)

    def resume_writing(self) -> None:
        """It reads."""
        super().resume_writing()
        self._read()

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection without a request, also when its client never takes the end of the last answer."""
        super().timeout_keep_alive_handler()
        self._read()
        self._unread = self.loop.call_later(UNREAD_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels whatever is served."""
        self.lost = True
        self._wait(None)
        self._read()
        super().connection_lost(exc)
        if self._serving is not None:
            self._serving.cancel()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None

    def _wait(self, seconds: float | None) -> None:
        """Seconds that the client has to send what is awaited, None without a limit; a running wait is not started
        again.
        """
        if seconds == self._waits_s:
            return
        if self._limit is not None:
            self._limit.cancel()
        self._waits_s = seconds
        self._limit = None if seconds is None else self.loop.call_later(seconds, self.abort)
