"""A short answer is one write: its events, its end, and the head before them."""

from collections.abc import Iterable
from typing import cast

import h11
import pytest

from services.common.request.sampling import FinishReason
from services.gateway.http.answers.answer import Answer
from services.gateway.http.answers.joined import Joined
from services.gateway.http.server.wire import Ending, Wire
from services.gateway.streams.events import Delta, Final
from services.gateway.streams.journey import Totals
from services.gateway.targets.messages import Speculation, Usage
from tests.support.cases import each

TOKENS = Delta(0, (1,), "a")
LAST = Delta(1, (2,), "b", last=True)
END = Final(FinishReason.LENGTH, "", 2, 1, 2, Totals(Usage(), Speculation()), "", 0)


class Said:
    """An answer whose events are two messages each."""

    def messages(self, choice: int, event: Delta | Final) -> Iterable[bytes]:
        """By the choice and what it is."""
        name = "end" if isinstance(event, Final) else event.text
        return [f"{choice}{name}".encode(), b";"]


@pytest.mark.parametrize(
    ("alone", "written", "held"),
    [(True, [b"0a;"], b"0b;0end;"), (False, [b"0a;", b"0b;", b"0end;"], b"")],
)
def test_the_last_tokens_of_an_only_choice_come_with_the_end(alone: bool, written: list[bytes], held: bytes) -> None:
    joined = Joined(cast(Answer, Said()), alone)
    assert [message for event in (TOKENS, LAST, END) for message in joined.messages(0, event)] == written
    assert joined.held == held


def test_a_last_piece_waits_for_the_end_that_follows_it() -> None:
    wire = asked(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
    assert wire.send(h11.Response(status_code=200, headers=[])) == b""
    first = wire.send(h11.Data(data=b"one"))
    assert first is not None and first.endswith(b"\r\n\r\n3\r\none\r\n")
    assert wire.send(h11.Data(data=Ending(b"two"))) == b""
    assert wire.send(h11.EndOfMessage()) == b"3\r\ntwo\r\n0\r\n\r\n"


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("said", [b"", b"all"])
def test_an_answer_of_one_piece_is_one_write(version: bytes, said: bytes) -> None:
    wire = asked(b"POST / HTTP/%b\r\nHost: a\r\nContent-Length: 0\r\n\r\n" % version)
    assert wire.send(h11.Response(status_code=200, headers=[])) == wire.send(h11.Data(data=Ending(said))) == b""
    sent = wire.send(h11.EndOfMessage())
    assert sent is not None and sent.startswith(b"HTTP/1.1 200")
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[(b"host", b"a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(sent)
    if version == b"1.0":
        client.receive_data(b"")
    events = [client.next_event() for _ in range(3 if said else 2)]
    assert isinstance(events[-1], h11.EndOfMessage)
    assert b"".join(event.data for event in events if isinstance(event, h11.Data)) == said


@each("close", [False, True])
@each("version", [b"1.1", b"1.0"])
@each("method", [b"POST", b"GET", b"HEAD"])
@each("size", [None, b"3"])
def test_a_head_says_what_h11_would_say(method: bytes, version: bytes, close: bool, size: bytes | None) -> None:
    """Whatever was asked: the same lines, and the same knowledge of what may follow."""
    head = b"%b / HTTP/%b\r\nHost: a\r\n%b\r\n" % (method, version, b"Connection: close\r\n" if close else b"")
    framing = [] if size is None else [(b"content-length", size)]
    answer = h11.Response(status_code=200, headers=[(b"x-a", b"1"), *framing, (b"date", b"now")], reason=b"OK")
    wire, plain = asked(head), h11.Connection(h11.SERVER)
    wire.lines = [(b"x-a", b"1"), (b"date", b"now")]
    bare = h11.Response(status_code=200, headers=framing, reason=b"OK")
    plain.receive_data(head)
    while not isinstance(plain.next_event(), h11.EndOfMessage):
        pass
    assert wire.send(bare) == b""
    parts: list[h11.Event] = [] if method == b"HEAD" else [h11.Data(data=b"abc")]
    said = b"".join(wire.send(part) or b"" for part in (*parts, h11.EndOfMessage()))
    expected = b"".join(plain.send(part) or b"" for part in (answer, *parts, h11.EndOfMessage()))
    assert [sorted(each.split(b"\r\n")) for each in (said, expected)] == [sorted(expected.split(b"\r\n"))] * 2
    assert said.partition(b"\r\n\r\n")[2] == expected.partition(b"\r\n\r\n")[2]
    assert wire.our_state is plain.our_state


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb: c", b"a\rb", b"\n", b"\r\n\r\nHTTP/1.1 200 OK"])
def test_a_header_is_one_line(value: bytes) -> None:
    wire = asked(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wire.lines = [(b"x-a", value)]
    with pytest.raises(h11.LocalProtocolError):
        wire.send(h11.Response(status_code=200, headers=[], reason=b"OK"))


def asked(head: bytes) -> Wire:
    """The server's end behind a whole request."""
    wire = Wire()
    wire.receive_data(head)
    while not isinstance(wire.next_event(), h11.EndOfMessage):
        pass
    return wire
