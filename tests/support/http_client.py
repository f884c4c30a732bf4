"""A client of HTTP/1.1 for tests: one connection a request, answers whole or event by event."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11

WAIT_S = 120.0
PIECE = 65_536


@dataclass
class Reply:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as values."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The refusal."""
        return self.json["error"]


class Http:
    """A connection on which one request is under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._h11 = h11.Connection(h11.CLIENT)

    async def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Sends a whole request; `content-length` is set unless it is given."""
        given = {"host": "localhost", "content-length": str(len(body)), **(headers or {})}
        listed = [(name.encode(), value.encode()) for name, value in given.items()]
        request = h11.Request(method=method, target=path, headers=listed)
        data = (self._h11.send(request) or b"") + (self._h11.send(h11.Data(data=body)) if body else b"")
        self.writer.write(data + (self._h11.send(h11.EndOfMessage()) or b""))
        await self.writer.drain()

    def begin(self, path: str, part: bytes, headers: Mapping[str, str]) -> None:
        """Sends the headers of a POST and the beginning of its body."""
        lines = [f"POST {path} HTTP/1.1", "host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + part)

    async def reply_to_raw(self) -> Reply:
        """The whole answer to bytes that a test wrote by itself."""
        if self._h11.our_state is h11.IDLE:
            self._h11.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
        return await self.reply()

    def again(self) -> None:
        """Another request follows on this connection."""
        self._h11 = h11.Connection(h11.CLIENT)

    async def head(self) -> h11.Response:
        """The status and headers of the answer."""
        while not isinstance(event := await self._event(), h11.Response):
            pass
        return event

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of the answer as it comes."""
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data), event
            yield bytes(event.data)

    async def reply(self) -> Reply:
        """The whole answer."""
        head = await self.head()
        body = b"".join([piece async for piece in self.pieces()])
        return Reply(head.status_code, {name.decode(): value.decode() for name, value in head.headers}, body)

    async def events(self) -> AsyncIterator[Any]:
        """The events of the answer; the last one is the text [DONE]."""
        rest = b""
        async for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n\n")
            for one in whole:
                if one.startswith(b":"):
                    continue
                data = one.removeprefix(b"data: ")
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)
        assert not rest

    async def _event(self) -> Any:
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            self._h11.receive_data(await self.reader.read(PIECE))
        return event


@asynccontextmanager
async def connected(address: str, tls: ssl.SSLContext | None = None, within_s: float = WAIT_S) -> AsyncIterator[Http]:
    """A connection; every wait ends."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        try:
            yield Http(reader, writer)
        finally:
            writer.transport.abort()


class Client:
    """Requests to one address, with the headers of one caller."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None, **headers: str) -> None:
        self.address = address
        self._tls = tls
        self._headers = {"content-type": "application/json", **headers}

    async def get(self, path: str, **headers: str) -> Reply:
        """A whole answer."""
        async with connected(self.address, self._tls) as http:
            await http.send("GET", path, headers=self._headers | headers)
            return await http.reply()

    async def ask(self, method: str, path: str) -> Reply:
        """A whole answer to a request without a body."""
        async with connected(self.address, self._tls) as http:
            await http.send(method, path, headers=self._headers)
            return await http.reply()

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        """A whole answer; a body that is no bytes goes as JSON."""
        async with connected(self.address, self._tls) as http:
            await http.send("POST", path, _bytes(body), {**self._headers, **(headers or {})})
            return await http.reply()

    async def stream(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> AsyncGenerator[Any]:
        """The events of an answer."""
        async with connected(self.address, self._tls) as http:
            await http.send("POST", path, _bytes({**body, "stream": True}), {**self._headers, **(headers or {})})
            head = await http.head()
            assert head.status_code == 200, head
            async for event in http.events():
                yield event


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
