"""One request and its answer over ASGI; it serves streams as the context of a call."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from services.common.request.errors import PacelineError
from services.gateway.http.schema.errors import Headers, error_headers, error_reply, status_of
from services.gateway.http.server.connection import Connection, Receive, Scope, Send
from services.gateway.http.server.wire import Ending
from services.gateway.streams import request_id

JSON = b"application/json"
STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
"""Headers of a stream of events; the last one tells nginx to pass each on as it comes."""


class DisconnectedError(Exception):
    """The client went away before its body was whole."""


@lru_cache(maxsize=1)
def date(second: int) -> bytes:
    """A second as HTTP writes it."""
    return formatdate(second, usegmt=True).encode()


def encoded(value: object) -> bytes:
    """Compact JSON; a number that is not finite is null."""
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:  # half a character, or nested deeper than it goes
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def event(value: object) -> bytes:
    """One event of a stream."""
    return b"data: " + encoded(value) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Words:
    """How an API says that a request failed: the body of the answer, and such a body as an event of a stream."""

    refusal: Callable[[PacelineError], object]
    event: Callable[[Any], bytes]


OPENAI = Words(error_reply, event)


class Exchange:
    """One request; an answer is either one `reply` or any number of `write` and an `end`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
        """Reads the headers only."""
        self._connection = connection
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.request_id = request_id.made()
        self.created = int(time.time())
        self.extra: Headers = []
        self.words = OPENAI
        self.begun = False
        self._opening = asyncio.Lock()
        self._opened = False
        self._last = time.monotonic()
        self.status = 0
        self._receive = receive
        self._send = send

    def name(self) -> None:
        """Takes the id that the client gave.

        Raises:
            PacelineError: INVALID_FIELD, it is none.
        """
        given = self.headers.get(request_id.HEADER)
        if given is not None:
            self.request_id = request_id.checked(given)

    def invocation_metadata(self) -> Iterable[tuple[str, str]]:
        """The headers, the id of the request among them."""
        return {**self.headers, request_id.HEADER: self.request_id}.items()

    def time_remaining(self) -> float | None:
        """None: X-Request-Timeout is a part of the query."""
        return None

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Nothing: every answer has its id in its headers."""

    def came(self) -> bytes | None:
        """The body, if all of it has come by now; then it is not asked for in pieces."""
        return self._connection.came()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises:
            DisconnectedError: the client went away.
        """
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            more = message.get("more_body", False)
            yield message.get("body", b"")

    @property
    def silent_s(self) -> float:
        """Seconds since something was written."""
        return time.monotonic() - self._last

    async def write(self, message: bytes) -> None:
        """Sends events behind the headers, whichever writer sends those; waits while the client does not read."""
        await self._open()
        await self._send({"type": "http.response.body", "body": message, "more_body": True})
        self._last = time.monotonic()

    async def end(self, message: bytes = b"") -> None:
        """Ends the stream of events, behind the last of them."""
        await self._open()
        await self._send({"type": "http.response.body", "body": Ending(message), "more_body": False})

    async def reply(
        self, body: bytes, status: HTTPStatus = HTTPStatus.OK, headers: Headers | None = None, kind: bytes = JSON
    ) -> None:
        """The whole answer, of a content type."""
        length = [(b"content-length", str(len(body)).encode())]
        await self._begin(status, [(b"content-type", kind), *(headers or ())], length)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def refuse(self, error: PacelineError) -> None:
        """The answer that is an error; in a stream that has begun it is the last event."""
        reply = self.words.refusal(error)
        if self.begun:
            await self.end(self.words.event(reply))
        else:
            await self.reply(encoded(reply), status_of(error), error_headers(error))

    async def _open(self) -> None:
        if not self._opened:
            async with self._opening:
                if not self.begun:
                    await self._begin(HTTPStatus.OK, STREAM, [])
                self._opened = True

    async def _begin(self, status: HTTPStatus, headers: Headers, length: Headers) -> None:
        self.begun = True
        self.status = int(status)
        always = [
            (b"date", date(int(time.time()))),
            (request_id.HEADER.encode(), self.request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]
        self._connection.conn.lines = [*always, *self.extra, *headers]
        await self._send({"type": "http.response.start", "status": int(status), "headers": length})
