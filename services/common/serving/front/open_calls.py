"""The calls of one connection that have not ended, read off the frames of both sides."""

from __future__ import annotations

HEAD = 9
DATA, HEADERS, RST_STREAM = 0, 1, 3
END_STREAM = 0x1


class OpenCalls:
    """Streams of HTTP/2 that a client has opened, and neither side has ended."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._last = 0
        self._head = b""
        self._left = 0

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, stream: int) -> None:
        """The client sent headers of a stream; those that end its message open nothing."""
        if stream > self._last:
            self._last = stream
            self._open.add(stream)

    def ended(self, stream: int) -> None:
        """One of both has ended it."""
        self._open.discard(stream)

    def answered(self, data: bytes) -> None:
        """Bytes of gRPC passed: frames, cut anywhere."""
        if self._head:
            data, self._head = self._head + data, b""
        position, end = self._left, len(data)
        while end - position >= HEAD:
            kind = data[position + 3]
            if kind == RST_STREAM or (kind <= HEADERS and data[position + 4] & END_STREAM):
                self.ended(int.from_bytes(data[position + 5 : position + HEAD], "big"))
            position += HEAD + int.from_bytes(data[position : position + 3], "big")
        self._left = max(0, position - end)
        self._head = data[position:]
