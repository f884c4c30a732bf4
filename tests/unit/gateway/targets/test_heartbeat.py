"""When a target counts as silent: frames, what it says when asked, whether it can be reached, and none of these."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from services.common.serving.tls import Peers
from services.gateway.targets import heartbeat
from services.gateway.targets.heartbeat import Heartbeat, SilentError
from services.gateway.targets.probes import reach
from services.gateway.targets.silence import ASK_AFTER, LONGEST, QUIET, SILENT_AFTER, UNREACHED_AFTER
from tests.support.fakes_target import FakeTarget


async def never() -> bool:
    raise AssertionError("not asked")


def ticks_until_silent(answers: dict[int, bool | None], reached: Collection[int] = range(200)) -> int:
    """Ticks until the verdict, with what the target answers right after some of them, and when it was reached."""
    made = Heartbeat(never, never)
    for tick in range(1, 200):
        if made.tick():
            return tick
        if tick in answers:
            made.answer(answers[tick])
        if tick in reached:
            made.reached()
    raise AssertionError("never silent")


def test_frames_keep_a_target() -> None:
    made = Heartbeat(never, never)
    for _ in range(100):
        assert not made.tick()
        made.beat()


def test_a_target_of_which_nothing_is_expected_may_rest_before_the_count_begins() -> None:
    made = Heartbeat(never, never)
    made.beat(quiet=True)
    assert [made.tick() for _ in range(QUIET + UNREACHED_AFTER)] == [False] * (QUIET + UNREACHED_AFTER)
    assert made.tick()


@pytest.mark.parametrize("rested", [0, 7, QUIET - 1])
def test_what_is_sent_to_a_quiet_target_ends_its_rest(rested: int) -> None:
    made = Heartbeat(never, never)
    made.beat(quiet=True)
    for _ in range(rested):
        assert not made.tick()
    made.expect()
    assert [made.tick() for _ in range(UNREACHED_AFTER + 1)] == [False] * UNREACHED_AFTER + [True]


def test_more_that_is_sent_gives_a_silent_target_no_more_time() -> None:
    made = Heartbeat(never, never)
    for _ in range(UNREACHED_AFTER):
        made.expect()
        assert not made.tick()
    made.expect()
    assert made.tick()


def test_without_any_answer_the_verdict_comes_soonest() -> None:
    assert ticks_until_silent({}, ()) == UNREACHED_AFTER + 1
    assert ticks_until_silent(dict.fromkeys(range(200)), ()) == UNREACHED_AFTER + 1
    assert ticks_until_silent({}, {5}) == UNREACHED_AFTER + 6


def test_a_process_that_is_reached_but_says_nothing_has_longer() -> None:
    assert ticks_until_silent({}) == SILENT_AFTER + 1
    assert ticks_until_silent(dict.fromkeys(range(200))) == SILENT_AFTER + 1


def test_a_starved_target_that_says_that_it_lives_is_kept_for_a_while() -> None:
    assert ticks_until_silent({3: True}) == SILENT_AFTER + 4
    assert ticks_until_silent(dict.fromkeys(range(200), True), ()) == LONGEST + 1


def test_a_target_that_says_that_it_is_stuck_gets_no_grace_for_what_it_said_before() -> None:
    assert ticks_until_silent({3: True, 5: True, 7: False}) == SILENT_AFTER + 1
    assert ticks_until_silent({3: True, 22: False}) == 23


async def test_it_asks_only_when_frames_are_missing_and_one_question_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TICK_S", 0.01)
    asked = 0

    async def hang() -> bool:
        nonlocal asked
        asked += 1
        await asyncio.sleep(60)
        return True

    with pytest.raises(SilentError):
        await Heartbeat(hang, hang).watch()
    assert asked == 2


async def test_answers_to_questions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TICK_S", 0.01)
    asked = 0

    async def live() -> bool | None:
        nonlocal asked
        asked += 1
        return True

    with pytest.raises(SilentError):
        await Heartbeat(live, never).watch()
    assert asked >= LONGEST - ASK_AFTER


async def test_connections_are_opened_only_as_long_as_nothing_else_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TICK_S", 0.01)
    opened = 0

    async def mute() -> bool | None:
        return None

    async def reached() -> bool:
        nonlocal opened
        opened += 1
        return True

    with pytest.raises(SilentError):
        await Heartbeat(mute, reached).watch()
    assert 1 < opened <= SILENT_AFTER / ASK_AFTER + 1


async def test_a_server_is_reached_and_a_listener_that_says_nothing_is_not() -> None:
    target = FakeTarget()
    address = await target.start()
    mute = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = mute.sockets[0].getsockname()[1]
    try:
        assert await reach(Peers(), address, 10.0)()
        assert not await reach(Peers(), f"127.0.0.1:{port}", 0.3)()
    finally:
        mute.close()
        await target.stop()
