"""When a target counts as silent: frames, what it says when asked, and neither."""

from __future__ import annotations

import asyncio

import pytest

from services.gateway.targets import heartbeat
from services.gateway.targets.heartbeat import LONGEST, SILENT_AFTER, Heartbeat, SilentError


async def never() -> bool | None:
    raise AssertionError("not asked")


def ticks_until_silent(answers: dict[int, bool | None]) -> int:
    """Ticks until the verdict, with what the target answers right after some of them."""
    made = Heartbeat(never)
    for tick in range(1, 200):
        if made.tick():
            return tick
        if tick in answers:
            made.answer(answers[tick])
    raise AssertionError("never silent")


def test_frames_keep_a_target() -> None:
    made = Heartbeat(never)
    for _ in range(100):
        assert not made.tick()
        made.beat()


def test_without_any_sign_the_verdict_comes_after_four_seconds() -> None:
    assert ticks_until_silent({}) == SILENT_AFTER + 1
    assert ticks_until_silent(dict.fromkeys(range(200))) == SILENT_AFTER + 1


def test_a_starved_target_that_says_that_it_lives_is_kept_for_a_while() -> None:
    assert ticks_until_silent({3: True}) == SILENT_AFTER + 4
    assert ticks_until_silent(dict.fromkeys(range(200), True)) == LONGEST + 1


def test_a_target_that_says_that_it_is_stuck_gets_no_grace_for_what_it_said_before() -> None:
    assert ticks_until_silent({3: True, 5: True, 7: False}) == SILENT_AFTER + 1
    assert ticks_until_silent({3: True, 10: False}) == 11


async def test_it_asks_only_when_frames_are_missing_and_one_question_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TICK_S", 0.01)
    asked = 0

    async def hang() -> bool | None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(60)
        return True

    with pytest.raises(SilentError):
        await Heartbeat(hang).watch()
    assert asked == 1


async def test_answers_to_questions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TICK_S", 0.01)
    asked = 0

    async def live() -> bool | None:
        nonlocal asked
        asked += 1
        return True

    with pytest.raises(SilentError):
        await Heartbeat(live).watch()
    assert asked >= LONGEST - heartbeat.ASK_AFTER
