"""Answers are the bytes that h11 and json make, by less work."""

from __future__ import annotations

import json
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.http.server.exchange import encoded
from services.gateway.http.server.wire import Wire
from tests.support.cases import each

PLAIN, SIZED = [(b"X-Kind", b"transfer-encoding: chunked")], [(b"Content-Length", b"6")]


def sent(wire: h11.Connection, asked: bytes, headers: list[tuple[bytes, bytes]], pieces: list[bytes]) -> list[bytes]:
    """What each event of an answer gives."""
    wire.receive_data(asked)
    assert isinstance(wire.next_event(), h11.Request)
    assert isinstance(wire.next_event(), h11.EndOfMessage)
    events = [h11.Response(status_code=200, headers=headers), *(h11.Data(data=piece) for piece in pieces)]
    return [wire.send(event) or b"" for event in [*events, h11.EndOfMessage()]]


@each("line", [b"GET / HTTP/1.1", b"HEAD / HTTP/1.1", b"GET / HTTP/1.0"])
@each("headers", [PLAIN, SIZED])
@each("pieces", [[b"abc", b"def"], [b"", b"abcdef", b""], [b"a" * 6]])
def test_an_answer_has_h11s_bytes_and_its_head_comes_with_the_first_piece(
    line: bytes, headers: list[tuple[bytes, bytes]], pieces: list[bytes]
) -> None:
    pieces = [b"" for _ in pieces] if line.startswith(b"HEAD") else pieces
    asked = line + b"\r\nHost: a\r\n\r\n"
    wire = Wire()
    ours, theirs = sent(wire, asked, headers, pieces), sent(h11.Connection(h11.SERVER), asked, headers, pieces)
    assert b"".join(ours) == b"".join(theirs)
    assert not ours[0] and ours[1].startswith(b"HTTP/1.1 200")
    assert wire.our_state in (h11.DONE, h11.MUST_CLOSE)


def test_a_second_answer_of_a_connection_is_framed_by_its_own_head() -> None:
    wire, asked = Wire(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    sent(wire, asked, PLAIN, [b"abcdef"])
    wire.start_next_cycle()
    assert b"".join(sent(wire, asked, SIZED, [b"abcdef"])).endswith(b"\r\n\r\nabcdef")


def test_a_piece_outside_of_an_answer_is_refused() -> None:
    with pytest.raises(h11.LocalProtocolError):
        Wire().send(h11.Data(data=b"a"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_json_says_the_same_value_in_one_line(value: Any) -> None:
    text = encoded(value)
    assert json.loads(text) == value
    assert b"\n" not in text and b": " not in encoded({"a": {"b": [1, 2]}})


def test_half_a_character_and_what_is_nested_deeply_are_sent_too() -> None:
    assert encoded(["a\ud800b", "é"]) == '["a?b","é"]'.encode()
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    assert encoded(deep) == b"[" * 600 + b"1" + b"]" * 600
    assert encoded([float("inf"), 1e300]) == b"[null,1e+300]", "no JSON has infinity"
