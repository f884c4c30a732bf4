"""One connection of a client, and the one to gRPC that its frames are passed on to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import cast

from services.common.serving.front.allowance import Allowance
from services.common.serving.front.answers import BUFFER, Answers
from services.common.serving.front.doorman import BUSY, UNREAD, UNUSED, Doorman
from services.common.serving.front.frames import Frames, Headers, ProtocolError

OPENING_S = 10.0
"""Time for the first words of HTTP/2, TLS included."""

STRANGER_S = 30.0
"""Time that a connection has to show a key, or to make its first call where none is needed."""

UNREAD_S = 30.0
"""Time that a client has to take what waits for it once its connection ends."""

LINGER_S = 1.0
"""Time for answers on their way when a connection must end."""

UNPROVEN_BYTES = 1 << 16
"""That a peer may send before it has proven who it is, where it must: some greetings, and no message that is large."""

FRAMES_A_SECOND, FRAMES_AT_ONCE = 4_000.0, 8_000.0
"""Frames of one connection; what comes sooner waits."""


class Relay(asyncio.BufferedProtocol):
    """The client's side. Whatever is read passes through one buffer at once, so that quiet connections hold none."""

    def __init__(
        self,
        client: socket.socket,
        address: str,
        doorman: Doorman,
        path: str,
        failed: Callable[[OSError], None],
        own: str = "",
    ) -> None:
        """gRPC listens at the Unix socket `path`; `failed` hears why it could not be reached.

        With `own` the peer must prove who it is; that is the path by which gRPC tells this connection from others.
        """
        self._socket, self.address = client, address
        self._own, self.proven, self._unproven = own, not own, UNPROVEN_BYTES
        self._doorman, self._path, self._failed = doorman, path, failed
        self.known, self.refusals, self._begun = False, 0, False
        self._loop = asyncio.get_running_loop()
        self.heard = self._loop.time()
        self._frames = Frames(self._judge)
        self._pace = Allowance(FRAMES_A_SECOND, FRAMES_AT_ONCE, self._loop.time)
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._early: bytes | None = b""
        self._opening: asyncio.Task[None] | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there, and TLS when there is any."""
        self._client, self._begun = cast(asyncio.Transport, transport), True
        self.heard = self._loop.time()
        self._limit = self._loop.call_later(OPENING_S, self.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer that everybody uses, each for one call."""
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes of the client came."""
        self.heard = self._loop.time()
        self._take(bytes(BUFFER[:nbytes]))

    def _take(self, data: bytes) -> None:
        """Passes on what may be; a client that asks for too much is read no further for a while."""
        seen = self._frames.seen
        try:
            passed = self._frames.feed(data)
        except ProtocolError:
            self._doorman.blame(self)
            self._end()
            return
        if passed:
            self._pass_on(passed)
        paced_s = 0.0 if self._own and self.proven else self._pace.take(self._frames.seen - seen)
        wait_s = max(self._frames.wait_s, paced_s)
        if wait_s and self._client is not None:
            self._client.pause_reading()
            self._pause = self._loop.call_later(wait_s, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._take(b"")
        self._read_on()

    def _read_on(self) -> None:
        if self._client is not None and self._pause is None and not self._full:
            self._client.resume_reading()

    @property
    def stated(self) -> frozenset[str]:
        """DNS names of the client's certificate, in lower case."""
        certificate = (self._client.get_extra_info("peercert") if self._client is not None else None) or {}
        return frozenset(name.lower() for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")

    def prove(self) -> None:
        """The service knows the peer: its messages may be large, and it may stay."""
        if not self.proven:
            self.proven = True
            self._doorman.recognise(self)
            self._wait(None)

    def _pass_on(self, data: bytes) -> None:
        if not self.proven:
            self._unproven -= len(data)
            if self._unproven < 0:
                self._doorman.blame(self)
                self._end()
                return
        if self._server is not None:
            self._server.write(data)
        elif self._early is not None:
            self._early += data
        if self._opening is None:
            self.hold(True)
            self._opening = self._loop.create_task(self._open())

    async def _open(self) -> None:
        """Connects to gRPC, once the client has said that it speaks HTTP/2."""
        if (client := self._client) is None:
            return
        self._wait(STRANGER_S)
        try:
            inner = await self._connected()
            answers = Answers(self, self._frames.calls, client)
            transport, _ = await self._loop.create_unix_connection(lambda: answers, sock=inner)
        except OSError as error:
            self._failed(error)
            self.abort()
            return
        early, self._early = self._early, None
        if self._client is None or early is None:
            transport.abort()
            return
        self._server = transport
        transport.write(early)
        self.hold(False)

    async def _connected(self) -> socket.socket:
        """A connection to gRPC, from a path of its own where gRPC must know which one it is.

        Raises:
            OSError: descriptors or memory are short.
        """
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)
            if self._own:
                inner.bind(self._own)
            await self._loop.sock_connect(inner, self._path)
        except BaseException:
            inner.close()
            raise
        finally:
            if self._own:
                os.unlink(self._own)  # gRPC knows the name once it has accepted
        return inner

    def _judge(self, headers: Headers) -> float:
        wait_s = self._doorman.judge(self, headers)
        if self.known:
            self._wait(None)
        return wait_s

    def _wait(self, seconds: float | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self._loop.call_later(seconds, self.abort)

    @property
    def claim(self) -> int:
        """How much it may stay where there is no room."""
        return BUSY if self._frames.calls else UNUSED if self._begun else UNREAD

    def answered(self) -> None:
        """gRPC has closed its side: the client gets what is on its way."""
        self._server = None
        if self._client is not None:
            self._wait(UNREAD_S)
            self._client.close()

    def hold(self, full: bool) -> None:
        """gRPC takes no more for now, or takes it again."""
        self._full = full
        if self._client is not None and full:
            self._client.pause_reading()
        self._read_on()

    def pause_writing(self) -> None:
        """The client does not read: gRPC is read no further."""
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again: gRPC is read again, too."""
        if self._server is not None:
            self._server.resume_reading()

    def eof_received(self) -> bool:
        """The client sends nothing more: its calls end."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._client, self._early = None, None
        self._frames.end()
        self._wait(None)
        if self._pause is not None:
            self._pause.cancel()
        if self._server is not None:
            self._server.abort()
        self._doorman.leave(self)

    def abort(self) -> None:
        """Ends it at once, also while TLS begins."""
        if self._client is not None:
            self._client.abort()
        elif self._opening is None:
            with contextlib.suppress(OSError):  # it has ended
                self._socket.shutdown(socket.SHUT_RDWR)

    def _end(self) -> None:
        """Reads nothing more, and ends when answers have had time to arrive."""
        if self._client is not None:
            self._client.pause_reading()
            self._full = True
            self._wait(LINGER_S)
