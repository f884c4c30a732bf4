"""HTTP/2 that is small on the wire and large once it is expanded, or that never ends."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.http2 import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, SETTINGS, frame, literal

PING, PRIORITY_FRAME, RST_STREAM, GOAWAY, WINDOW_UPDATE, DATA = 6, 2, 3, 7, 8, 0
PADDED = 8
LARGE = b"b" * 3900


def indexed(name: bytes, value: bytes) -> bytes:
    """A header that the table keeps."""
    return b"\x40" + literal(name, value)[1:]


def referred(count: int, index: int = 62) -> bytes:
    """The header that the table got last, again and again."""
    return bytes((0x80 | index,)) * count


def bombs() -> Iterator[tuple[str, bytes]]:
    """Headers of one call that expand beyond any bound, by what they do; the table is as at the start."""
    yield "a large value, referred to", indexed(b"x", LARGE) + referred(4000)
    yield "a large name, referred to", indexed(LARGE, b"x") + referred(4000)
    yield "a small header, referred to", indexed(b"x", b"y") + referred(12_000)
    yield "a static header, referred to", referred(12_000, 2)
    yield "empty headers", literal(b"", b"") * 4_000
    yield "empty headers that the table keeps", indexed(b"", b"") * 4_000
    yield "a header of a known name", b"\x0f\x08\x00" * 4_000
    yield "a value in Huffman's code", b"\x40\x01x\xff\x80\x7d" + b"\x00" * 16_127


def floods() -> Iterator[tuple[str, bytes]]:
    """Frames that make the server keep something, or work, without an end."""
    head = literal(b":path", b"/")
    yield "headers that never end", frame(HEADERS, 0, 1, head) + frame(CONTINUATION, 0, 1, head) * 200
    yield "headers in empty frames", frame(HEADERS, 0, 1, head) + frame(CONTINUATION, 0, 1) * 200
    yield (
        "headers in large frames",
        frame(HEADERS, 0, 1, literal(b"x", bytes(16_000))) * 1
        + b"".join(frame(CONTINUATION, 0, 1, literal(b"x", bytes(16_000))) for _ in range(6)),
    )
    yield "headers that another frame interrupts", frame(HEADERS, 0, 1, head) + frame(PING, 0, 0, bytes(8))
    yield "headers without a first frame", frame(CONTINUATION, END_HEADERS, 1, head)
    yield "a frame of settings that is large", frame(SETTINGS, 0, 0, bytes(6 * 4000))
    yield "a large frame of no known kind", frame(99, 0, 1, bytes(1 << 20))
    yield "padding that is longer than its frame", frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff\x00")
    yield "padding without a length", frame(HEADERS, END_HEADERS | PADDED, 1)
    yield "an index that no table has", frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\x7f")
    yield "a table of 4 GiB", frame(HEADERS, END_HEADERS, 1, b"\x3f\xe1\xff\xff\xff\x0f" + head)
    yield "a header that is cut", frame(HEADERS, END_HEADERS, 1, b"\x40\x7f\xff\x7f")


def call(stream: int, block: bytes) -> bytes:
    """A call whose headers are this block, in as many frames as that takes."""
    pieces = [block[at : at + 16_384] for at in range(0, len(block), 16_384)] or [b""]
    frames = [frame(HEADERS if not at else CONTINUATION, 0, stream, piece) for at, piece in enumerate(pieces)]
    last = bytearray(frames[-1])
    last[4] = END_HEADERS
    frames[-1] = bytes(last)
    first = bytearray(frames[0])
    first[4] |= END_STREAM
    return bytes(first) + b"".join(frames[1:])
