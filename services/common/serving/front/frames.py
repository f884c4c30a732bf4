"""Reads the frames of an HTTP/2 client as far as needed to know what its headers become once expanded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hpack import Decoder, HPACKError

from services.common.serving.channel import MAX_HEADER_BYTES
from services.common.serving.front.open_calls import DATA, HEAD, HEADERS, RST_STREAM, OpenCalls

Headers = Sequence[tuple[bytes, bytes]]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CONTINUATION = 9
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20

MOST_FRAME_BYTES = 16_384
"""Any frame but those of messages."""

MOST_BLOCK_FRAMES = 8
"""Frames that the headers of one call may come in."""

MOST_LIST_BYTES = 4 * MAX_HEADER_BYTES
"""Headers of one call on the wire, and when expanded, each counted with 32 bytes more then. gRPC refuses what is over a
quarter of it; over all of it the connection ends, which may be a proxy's: public ones take no larger headers.
"""


class ProtocolError(Exception):
    """The peer sent what no gRPC client sends; its connection must end."""


class Frames:
    """What one client sends, cut where its headers are whole."""

    def __init__(self, judge: Callable[[Headers], float]) -> None:
        """`judge` is asked about the headers of each call, and gives the seconds that what follows them must wait."""
        self._judge = judge
        self._decoder = Decoder(MOST_LIST_BYTES)
        self._kept = b""
        self._begun = False
        self._left = 0
        self.calls = OpenCalls()
        self.seen = 0
        self.wait_s = 0.0

    @property
    def begun(self) -> bool:
        """The client has said that it speaks HTTP/2."""
        return self._begun

    def feed(self, data: bytes) -> bytes:
        """What may be passed on of what came; the rest is kept until more comes. Sets `wait_s` and adds to `seen`.

        Raises:
            ProtocolError: the connection must end.
        """
        self.wait_s = 0.0
        data = self._kept + data if self._kept else data
        passed = self._passed(data)
        self._kept = data[passed:]
        return data[:passed]

    def end(self) -> None:
        """Lets go of what is kept, and of whoever judges: the two hold one another."""
        self._kept, self._judge = b"", _nobody

    def _passed(self, data: bytes) -> int:
        position = 0
        if not self._begun:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise ProtocolError("no HTTP/2")
            if len(data) < len(PREFACE):
                return 0
            self._begun, position = True, len(PREFACE)
        while position < len(data) and not self.wait_s:
            if self._left:
                step = min(self._left, len(data) - position)
                self._left -= step
            else:
                step = self._frame(data, position)
            if not step:
                break
            position += step
        return position

    def _frame(self, data: bytes, start: int) -> int:
        """Bytes of the frame, or of the headers in several ones, that begins there; 0 when they are not all there."""
        if len(data) - start < HEAD:
            return 0
        size, kind = int.from_bytes(data[start : start + 3], "big"), data[start + 3]
        if kind == HEADERS:
            return self._headers(data, start)
        if kind == CONTINUATION or (kind != DATA and size > MOST_FRAME_BYTES):
            raise ProtocolError("a frame of headers without the first, or a large one")
        if kind == RST_STREAM:
            self.calls.ended(_stream(data, start))
        self.seen += 1
        self._left = size
        return HEAD

    def _headers(self, data: bytes, start: int) -> int:
        block, position = [], start
        for number in range(MOST_BLOCK_FRAMES):
            if len(data) - position < HEAD:
                return 0
            size = int.from_bytes(data[position : position + 3], "big")
            kind, flags = data[position + 3], data[position + 4]
            if kind != (CONTINUATION if number else HEADERS) or position + size - start > MOST_LIST_BYTES:
                raise ProtocolError("headers are too large, or interrupted")
            if len(data) - position - HEAD < size:
                return 0
            block.append(_fragment(data[position + HEAD : position + HEAD + size], 0 if number else flags))
            position += HEAD + size
            if flags & END_HEADERS:
                self.seen += number + 1
                self.calls.opened(_stream(data, start))
                self.wait_s = self._judge(self._expanded(b"".join(block)))
                return position - start
        raise ProtocolError("headers come in too many frames")

    def _expanded(self, block: bytes) -> Headers:
        try:
            found = self._decoder.decode(block, raw=True)
        except (HPACKError, IndexError, ValueError) as error:
            raise ProtocolError(f"headers: {error}") from None
        self._forget(block)
        return [(bytes(name), bytes(value)) for name, value in found]

    def _forget(self, block: bytes) -> None:
        """Copies what the table took of a block: a view of some bytes would hold all of it."""
        entries: Any = self._decoder.header_table.dynamic_entries
        for index, (name, value) in enumerate(entries):
            if isinstance(name, bytes) and isinstance(value, bytes):
                break
            entries[index] = (bytes(name), bytes(value))


def _nobody(_: Headers) -> float:
    raise ProtocolError("the connection has ended")


def _stream(data: bytes, start: int) -> int:
    """The number of the stream of the frame that begins there."""
    return int.from_bytes(data[start + 5 : start + HEAD], "big") & 0x7FFFFFFF


def _fragment(payload: bytes, flags: int) -> bytes:
    """The part of a frame that is headers."""
    first, last = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ProtocolError("padding has no length")
        first, last = 1, last - payload[0]
    if flags & PRIORITY:
        first += 5
    if first > last:
        raise ProtocolError("padding is longer than its frame")
    return payload[first:last]
