"""The calls of a connection that have not ended are known from the frames of both sides, however they are cut."""

from __future__ import annotations

import pytest

from services.common.serving.front.frames import Frames
from services.common.serving.front.open_calls import OpenCalls
from tests.faults.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    METHOD,
    RST_STREAM,
    SETTINGS,
    START,
    frame,
    literal,
    opening,
)

ERROR = bytes(4)


def opened(*streams: int) -> OpenCalls:
    calls = OpenCalls()
    for stream in streams:
        calls.opened(stream)
    return calls


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 10, 33, 1 << 16])
def test_answers_end_their_calls_however_they_are_cut(size: int) -> None:
    calls = opened(1, 3, 5, 7)
    answers = frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, b"h" * 20) + frame(DATA, 0, 1, bytes(40))
    answers += frame(HEADERS, END_HEADERS | END_STREAM, 1, b"t" * 9) + frame(RST_STREAM, 0, 3, ERROR)
    answers += frame(6, 1, 0, bytes(8)) + frame(DATA, END_STREAM, 5)
    for at in range(0, len(answers), size):
        calls.answered(answers[at : at + size])
    assert len(calls) == 1
    calls.answered(frame(RST_STREAM, 0, 7, ERROR))
    assert not calls


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_a_client_opens_by_headers_and_ends_by_a_reset(size: int) -> None:
    frames = Frames(lambda headers: 0.0)
    said = START + frame(HEADERS, END_HEADERS, 1, opening(METHOD)) + frame(HEADERS, END_HEADERS, 3, opening(METHOD))
    counts = []
    for part in (said, frame(RST_STREAM, 0, 1, ERROR), frame(DATA, END_STREAM, 3, b"x" * 30)):
        for at in range(0, len(part), size):
            frames.feed(part[at : at + size])
        counts.append(len(frames.calls))
    assert counts == [2, 1, 1]


def test_headers_that_end_a_message_open_no_call_anew() -> None:
    frames = Frames(lambda headers: 0.0)
    frames.feed(START + frame(HEADERS, END_HEADERS, 1, opening(METHOD)))
    frames.calls.answered(frame(RST_STREAM, 0, 1, ERROR))
    frames.feed(frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"x-end", b"1")))
    assert not frames.calls
