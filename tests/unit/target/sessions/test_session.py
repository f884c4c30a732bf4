"""Outboxes and the fan-out of a round's news."""

from __future__ import annotations

import pytest

from services.target.core.commands import CloseSession, Command, OpenSession
from services.target.core.load import Load
from services.target.core.messages import End, RoundNews, Update
from services.target.sessions.sessions import Frame, GatewaySession, GoAwayFrame, RoundFrame, Sessions, SlowGatewayError

LOAD = Load(0, 0, 4, 0, 10, 10)


class Hall:
    """Sessions under a clock, and the commands they sent."""

    def __init__(self, capacity: int = 4) -> None:
        self.now = 0.0
        self.commands: list[Command] = []
        self.sessions = Sessions(self.commands.append, capacity, lambda: self.now)

    def round(self, number: int, **tokens: int) -> None:
        """News with so many tokens for request r of session s: round(1, s1=2)."""
        news = {int(name[1:]): [Update("r", tokens=(7,) * count)] for name, count in tokens.items()}
        self.sessions.deliver(RoundNews(number, LOAD, False, news))


async def read(session: GatewaySession, count: int) -> list[Frame]:
    frames = []
    async for frame in session.frames():
        frames.append(frame)
        if len(frames) == count:
            break
    return frames


async def test_a_round_is_one_frame_for_each_session_with_news() -> None:
    hall = Hall()
    one, two = hall.sessions.open("a"), hall.sessions.open("b")
    hall.round(1, s1=1)
    hall.round(2, s1=2, s2=3)
    assert [len(frame.updates[0].tokens) for frame in await read(one, 2) if isinstance(frame, RoundFrame)] == [1, 2]
    assert await read(two, 1) == [RoundFrame(2, LOAD, False, (Update("r", tokens=(7, 7, 7)),))]


async def test_a_quiet_session_gets_a_heartbeat_when_its_time_has_come() -> None:
    hall = Hall()
    session = hall.sessions.open("a")
    hall.round(1, s1=1)
    hall.now = 0.3
    hall.round(2)
    hall.now = 0.6
    hall.round(3)
    assert [frame.number for frame in await read(session, 2) if isinstance(frame, RoundFrame)] == [1, 3]


async def heard(session: GatewaySession) -> list[int]:
    """Numbers of the rounds that it is told."""
    session.close()
    return [frame.number async for frame in session.frames() if isinstance(frame, RoundFrame)]


async def test_a_gateway_that_wants_quiet_hears_of_rounds_when_its_time_has_come() -> None:
    hall = Hall(capacity=99)
    session, often = hall.sessions.open("a", quiet_s=5.0), hall.sessions.open("b")
    for number in range(24):
        hall.now = 1.0 + number / 2
        hall.round(number)
    assert await heard(session) == [0, 10, 20]
    assert await heard(often) == [*range(24)]


async def test_a_load_that_changed_is_told_within_half_a_second() -> None:
    hall = Hall(capacity=99)
    session = hall.sessions.open("a", quiet_s=5.0)
    loads = [LOAD, LOAD, Load(1, 0, 4, 0, 9, 10), Load(1, 0, 4, 0, 9, 10), Load(1, 0, 4, 0, 9, 10), LOAD]
    for number, load in enumerate(loads):
        hall.now = 1.0 + number * 0.3
        hall.sessions.deliver(RoundNews(number, load, False, {}))
    hall.now = 4.0
    hall.sessions.deliver(RoundNews(9, LOAD, True, {}))
    assert await heard(session) == [0, 2, 5, 9]


async def test_a_gateway_that_waits_for_a_request_hears_often_until_that_ends() -> None:
    hall = Hall(capacity=99)
    session = hall.sessions.open("a", quiet_s=5.0)
    hall.now = 1.0
    hall.round(0)
    session.expect("r")
    for number in range(1, 4):
        hall.now += 0.5
        hall.round(number)
    hall.sessions.deliver(RoundNews(4, LOAD, False, {1: [Update("other", end=End())]}))
    hall.now += 0.5
    hall.round(5)
    hall.sessions.deliver(RoundNews(6, LOAD, False, {1: [Update("r", end=End())]}))
    for number in range(7, 18):
        hall.now += 0.5
        hall.round(number)
    assert await heard(session) == [0, 1, 2, 3, 4, 5, 6, 16]


@pytest.mark.parametrize(
    ("asked", "given"), [(0.0, 0.5), (-3.0, 0.5), (float("inf"), 10.0), (3_000.0, 10.0), (7.0, 7.0)]
)
def test_no_gateway_can_ask_for_more_quiet_than_it_would_bear(asked: float, given: float) -> None:
    session = Hall().sessions.open("a", quiet_s=asked)
    session.put(RoundFrame(1, LOAD, False), 100.0)
    assert not session.due(LOAD, False, 100.0 + given - 0.01)
    assert session.due(LOAD, False, 100.0 + given)


async def test_a_gateway_that_does_not_read_loses_its_own_session_only() -> None:
    hall = Hall(capacity=2)
    slow, quick = hall.sessions.open("slow"), hall.sessions.open("quick")
    for number in range(1, 4):
        hall.round(number, s1=2, s2=1)
        assert len(await read(quick, 1)) == 1
    with pytest.raises(SlowGatewayError):
        await read(slow, 1)
    hall.sessions.leave(slow)
    hall.sessions.leave(slow)
    assert hall.commands == [CloseSession(1, {"r": 4})], "what was never sent is told, once"
    assert len(hall.sessions) == 1


def test_the_engine_hears_of_gateways_that_always_say_what_they_kept() -> None:
    hall = Hall()
    hall.sessions.open("before this was said")
    hall.sessions.open("a", settles=True)
    assert hall.commands == [OpenSession(2)]


async def test_sessions_opened_while_leaving_are_told_at_once() -> None:
    hall = Hall()
    early = hall.sessions.open("a")
    hall.sessions.go_away(5.0)
    late = hall.sessions.open("b")
    assert await read(early, 1) == await read(late, 1) == [GoAwayFrame(5.0)]
    hall.round(1, s1=1)
    hall.sessions.close_all()
    assert len(await read(early, 9)) == 1, "what is queued is still sent"
    hall.round(2, s1=1)
    assert await read(early, 1) == []
