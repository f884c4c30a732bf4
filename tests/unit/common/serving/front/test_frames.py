"""Frames of clients: legal ones pass byte for byte, and nothing that expands without bound does."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from services.common.serving.front.frames import (
    MOST_FRAME_BYTES,
    MOST_LIST_BYTES,
    PREFACE,
    Frames,
    Headers,
    ProtocolError,
)
from tests.faults.http2 import DATA, END_HEADERS, HEADERS, METHOD, START, frame, literal, opening
from tests.support.hostile_frames import PADDED, bombs, call, floods, indexed, referred

PRIORITY = 0x20


def judged() -> tuple[Frames, list[Headers]]:
    found: list[Headers] = []

    def judge(headers: Headers) -> float:
        found.append(headers)
        return 0.0

    return Frames(judge), found


def conversation() -> bytes:
    """What a client may send: tables, padding, priorities, headers in pieces, messages, frames of no known kind."""
    block = opening(METHOD, indexed(b"authorization", b"Bearer key"), indexed(b"x-note", b"n" * 300))
    made = START + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, 0, 1, b"\x00\x00\x00\x00\x02ab")
    made += frame(HEADERS, 0, 3, opening(METHOD)) + frame(9, END_HEADERS, 3, referred(1) + referred(1, 63))
    made += frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 5, b"\x04" + bytes(5) + referred(2) + bytes(4))
    return made + frame(99, 0, 0, b"?") + frame(DATA, 1, 1, bytes(20_000)) + frame(6, 0, 0, bytes(8))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 9, 10, 24, 100, 1 << 20])
def test_what_a_client_may_send_passes_as_it_is_however_it_is_cut(size: int) -> None:
    frames, calls = judged()
    whole = conversation()
    passed = b"".join(frames.feed(whole[at : at + size]) for at in range(0, len(whole), size))
    assert passed == whole
    assert len(calls) == 3
    assert (b"authorization", b"Bearer key") in calls[0]
    assert (b"authorization", b"Bearer key") in calls[1], "by reference"
    assert calls[2] == [(b"x-note", b"n" * 300)] * 2
    assert frames.seen == 9


def test_headers_pass_only_when_they_are_whole() -> None:
    frames, calls = judged()
    head = frame(HEADERS, 0, 1, opening(METHOD))
    assert frames.feed(START + head) == START
    assert not calls
    rest = frame(9, END_HEADERS, 1, b"")
    assert frames.feed(rest) == head + rest
    assert len(calls) == 1


def test_what_follows_a_call_that_must_wait_is_kept() -> None:
    waits = iter((0.5, 0.0))
    frames = Frames(lambda _: next(waits))
    first, second = frame(HEADERS, END_HEADERS, 1, opening(METHOD)), frame(HEADERS, END_HEADERS, 3, opening(METHOD))
    assert frames.feed(START + first + second) == START + first
    assert frames.wait_s == 0.5
    assert frames.feed(b"") == second
    assert frames.wait_s == 0.0


@pytest.mark.parametrize("block", [pytest.param(block, id=name) for name, block in bombs()])
def test_headers_that_expand_end_the_connection_before_they_do(block: bytes) -> None:
    frames, calls = judged()
    frames.feed(START)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            frames.feed(call(1, block))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not calls
    assert most < 16 * MOST_LIST_BYTES


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in floods()])
def test_frames_that_no_client_sends_end_the_connection(data: bytes) -> None:
    frames, calls = judged()
    frames.feed(START)
    with pytest.raises(ProtocolError):
        frames.feed(data)
    assert not calls


def test_what_is_no_http2_ends_the_connection_at_the_first_wrong_byte() -> None:
    for data in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", PREFACE[:10] + b"X"):
        with pytest.raises(ProtocolError):
            judged()[0].feed(data)


def test_the_table_holds_no_more_than_its_own_bytes() -> None:
    """A view of the block that an entry came in would hold all of the block."""
    frames = Frames(lambda _: 0.0)
    frames.feed(START)
    tracemalloc.start()
    try:
        for number in range(1, 201, 2):
            frames.feed(call(number, literal(b"x", b"y" * 12_000) + indexed(b"a", b"%d" % number)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 16 * MOST_FRAME_BYTES


def test_any_bytes_pass_or_end_the_connection(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2000):
        frames, _ = judged()
        frames.feed(START)
        data = bytearray(conversation()[len(START) :][:600])
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            passed = frames.feed(bytes(data))
        except ProtocolError:
            continue
        assert bytes(data).startswith(passed)
