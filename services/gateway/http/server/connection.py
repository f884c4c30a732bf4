"""One connection of uvicorn, with limits of size, number and time that hold before the caller is known."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from services.gateway.http.schema.errors import RefusedError, encoded_refusal
from services.gateway.http.server.connections import Seat
from services.gateway.http.server.limits import BODY_LINGER_S, HEADERS_S, IDLE_S, READ_BYTES, SMALL_BYTES, UNREAD_S
from services.gateway.http.server.turns import Turns
from services.gateway.http.server.wire import Wire

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Serve = Callable[["Connection", Scope, Receive, Send], Awaitable[None]]
Refused = Callable[[RefusedError], None]


class Flow(FlowControl):
    """Reads nothing while it is `held`, whoever asks for more."""

    held = False

    def hold(self) -> None:
        """Reads nothing more until `free`: the transport's own pauses do not end it."""
        self.held = True
        self.pause_reading()

    def free(self) -> None:
        """Reads again."""
        self.held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        """Reads again, unless it is held."""
        if not self.held:
            super().resume_reading()


class Connection(H11Protocol):
    """Closes when headers take too long or a refused body goes on; one that waits makes room for others.

    `overruled` is what its client heard in place of an answer: the rest of the request was none.
    """

    conn: Wire
    flow: Flow

    def __init__(
        self, serve: Serve, refused: Refused, config: Config, state: ServerState, seat: Seat, turns: Turns
    ) -> None:
        """`serve` handles each request, in a task of its own; `refused` hears of what is none.

        What came is looked at in its turn of `turns`.
        """
        super().__init__(config, state, {})
        self.conn = Wire()
        self.app = partial(serve, self)
        self.lost = False
        self.overruled: RefusedError | None = None
        self._refused = refused
        self._seat = seat
        self._turns = turns
        self._asked = self._came = False
        self._leaving = False
        self._serving: asyncio.Task[Any] | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._waits_s: float | None = None
        self._unread: asyncio.TimerHandle | None = None

    def serving(self, task: asyncio.Task[Any] | None) -> None:
        """The task to cancel when the client goes; None when its request has ended."""
        self._serving = task

    def know(self) -> None:
        """Its client has shown a key."""
        self._seat.known = True

    def came(self) -> bytes | None:
        """The body of the present request, if all of it has come and nothing of it was taken."""
        cycle = self.cycle
        return None if cycle is None or cycle.more_body or cycle.disconnected else bytes(cycle.body)

    def abort(self) -> None:
        """Ends the connection and drops what the client has not read."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for headers."""
        super().connection_made(transport)
        # asyncio's own 256 KiB for each connection that waits for its turn would be too much.
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self.flow = Flow(transport)
        self._seat.end = self._make_room
        self._wait(HEADERS_S)

    def data_received(self, data: bytes) -> None:
        """Keeps what came until it is looked at."""
        if not self._leaving:
            self._came = True
            super().data_received(data)

    def handle_events(self) -> None:
        """Looks at what came in its turn: at once if no other connection has had this one.

        While it waits nothing more is read, but once behind what is small: most requests are, and come alone, and to
        stop reading and go on would be two system calls for each.
        """
        if self._asked:
            self.flow.hold()
            return
        if self.conn.at_rest:
            return  # an answer has ended, and no other request has begun to come
        if self._turns.take():
            self._look()
            return
        self._asked = True
        if len(self.conn.trailing_data[0]) > SMALL_BYTES:
            self.flow.hold()
        self._turns.ask(self._look)

    def _look(self) -> None:
        """Headers that came end the wait for them; the first byte of the next ones begins another.

        What is too much for one turn goes on in the next.
        """
        self._asked = False
        if self._leaving or self.transport.is_closing():
            return
        self.flow.free()
        self.conn.begin_turn()
        super().handle_events()
        if self.conn.over:
            self.handle_events()
        elif self._came:
            self._came = False
            self._await_next()

    def on_response_complete(self) -> None:
        """Reads a refused body for a moment, because hanging up at once would drop the answer on its way."""
        unread = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if unread and any(name == b"transfer-encoding" for name, _ in self.headers):
            self._leave()
        elif not self._leaving:
            self._wait(BODY_LINGER_S if unread else None)
            self._tell()

    def send_400_response(self, msg: str) -> None:
        """Says why what came is refused; nothing more of it is looked at."""
        if self.transport.is_closing():
            return
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self.conn.fault is None:
            self.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # who waits for the rest of a body shall not answer too
            self.overruled = self.conn.fault
            self.cycle.message_event.set()
        else:
            self._refused(self.conn.fault)
        status, headers, body = encoded_refusal(self.conn.fault)
        head = h11.Response(status_code=status, headers=[*headers, (b"connection", b"close")], reason=status.phrase)
        said = [] if self.conn.without_body else [h11.Data(data=body)]
        for event in (head, *said, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._leave()

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
        self._seat.leave()
        super().connection_lost(exc)
        if self._serving is not None:
            self._serving.cancel()

    def _make_room(self) -> None:
        """Ends for the sake of another one; what its client has not taken yet still goes out for a moment."""
        self.transport.close()
        self._wait(BODY_LINGER_S)

    def _await_next(self) -> None:
        if self._leaving:
            return
        if self.conn.their_state is h11.IDLE:
            self._wait(HEADERS_S if self.conn.trailing_data[0] else IDLE_S)
        elif self.conn.our_state is not h11.DONE:
            self._wait(None)
        self._tell()

    def _tell(self) -> None:
        """Whether it may make room: not from the end of a request to the end of its answer."""
        cycle = self.cycle
        self._seat.tell(busy=not (cycle is None or cycle.response_complete or cycle.more_body))

    def _leave(self) -> None:
        """Drops whatever still comes, unread, and goes when the client has had time to read the answer."""
        self._leaving = True
        self._unset_keepalive_if_required()
        self.flow.free()
        if self.transport.can_write_eof():
            with suppress(OSError):  # the client has gone
                self.transport.write_eof()
        self._wait(BODY_LINGER_S)

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
