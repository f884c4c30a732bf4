"""Frames of HTTP/2, written by hand so that they may be wrong."""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4
METHOD = b"/paceline.v1.InferenceService/Generate"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that no table holds; lengths up to 16,510 bytes."""
    return b"\x00" + _length(name) + _length(value)


def _length(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes((len(text),)) + text
    rest, digits = len(text) - 127, bytearray([127])
    while rest >= 128:
        digits.append(rest % 128 + 128)
        rest //= 128
    digits.append(rest)
    return bytes(digits) + text


def opening(path: bytes, *more: bytes) -> bytes:
    """The headers of a call."""
    known = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a"))
    usual = ((b"te", b"trailers"), (b"content-type", b"application/grpc"))
    return b"".join(literal(*pair) for pair in (*known, *usual)) + b"".join(more)


START = PREFACE + frame(SETTINGS, 0, 0)
