"""A hostile HTTP/2 client: opens many calls on one connection and sends each message but for its last frame."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable

from tests.faults.http2 import DATA, END_HEADERS, HEADERS, METHOD, RST_STREAM, SETTINGS, START, frame, opening

PING, WINDOW_UPDATE = 6, 8
ACK = 1
PIECE = 16_384
FIRST_WINDOW = 65_535
ZEROS = bytes(PIECE)
LONGEST_S = 120.0
"""A busy machine answers late; what it has not answered by then it never will."""


class HalfSent:
    """One connection. It respects the windows that the server grants, as the server would hang up on it otherwise."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted = 0
        self.refused: set[int] = set()
        self._reader, self._writer = reader, writer
        self._window = FIRST_WINDOW
        self._first_window = FIRST_WINDOW
        self._windows: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def open(self, streams: int, message_bytes: int, *headers: bytes, method: bytes = METHOD) -> None:
        """Opens calls and begins their messages, of which all but the last frame is to be sent."""
        self._writer.write(START)
        begun = struct.pack(">BI", 0, message_bytes)
        for number in range(1, 2 * streams, 2):
            self._writer.write(frame(HEADERS, END_HEADERS, number, opening(method, *headers)))
            self._writer.write(frame(DATA, 0, number, begun))
            self._windows[number], self._left[number] = self._first_window - 5, message_bytes - PIECE
            self._window -= 5

    async def run(self, quiet_s: float, answered: Callable[[], bool]) -> None:
        """Sends whatever the server takes, until it has `answered` and has asked for nothing more for a while."""
        end = time.monotonic() + LONGEST_S
        self._push()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                try:
                    head = await asyncio.wait_for(self._reader.readexactly(9), quiet_s)
                except TimeoutError:
                    if answered() or time.monotonic() > end:
                        return
                    continue
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload)
                self._push()
                await self._writer.drain()

    def close(self) -> None:
        """Goes without a word."""
        self._writer.transport.abort()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == 4:
                    self._windows = {each: left + value - self._first_window for each, left in self._windows.items()}
                    self._first_window = value
            self._writer.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._writer.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self._windows[stream] = self._windows.get(stream, 0) + more
            else:
                self._window += more
        elif kind == RST_STREAM or (kind == HEADERS and flags & 1):
            self.refused.add(stream)
            self._left.pop(stream, None)

    def _push(self) -> None:
        for number in self._left:
            while (size := min(self._windows[number], self._window, self._left[number], PIECE)) > 0:
                self._writer.write(frame(DATA, 0, number, ZEROS[:size]))
                self._windows[number] -= size
                self._left[number] -= size
                self._window -= size
                self.accepted += size


async def half_sent(address: str) -> HalfSent:
    """Connects."""
    host, _, port = address.rpartition(":")
    return HalfSent(*await asyncio.open_connection(host, int(port)))
