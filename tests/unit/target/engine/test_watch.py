"""Health, sync points and settings."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import TargetMetrics
from services.common.request.errors import PacelineError
from services.target.core.sync_points import SyncPointError, SyncPoints
from services.target.engine.watch import EngineWatch, keep_health
from services.target.settings import TargetSettings
from tests.support.cases import each
from tests.support.metrics import value_of


@dataclass
class Pulse:
    steps: int = 0
    turns: int = 0
    pending: bool = False


def watched() -> tuple[Pulse, list[float], EngineWatch]:
    pulse, clock = Pulse(), [0.0]
    return pulse, clock, EngineWatch(pulse, 3.0, lambda: clock[0])


def test_an_idle_engine_that_turns_is_healthy() -> None:
    pulse, clock, watch = watched()
    for _ in range(20):
        clock[0] += 1.0
        pulse.turns += 1
        assert watch.healthy()


def test_work_without_steps_is_a_stall_and_a_step_ends_it() -> None:
    pulse, clock, watch = watched()
    pulse.pending = True
    verdicts = []
    for _ in range(5):
        clock[0] += 1.0
        pulse.turns += 1
        verdicts.append(watch.healthy())
    assert verdicts == [True, True, True, False, False]
    pulse.steps += 1
    assert watch.healthy()


def test_an_engine_that_does_not_turn_is_stalled_even_without_work() -> None:
    _, clock, watch = watched()
    assert watch.healthy()
    verdicts = []
    for clock[0] in (1.0, 2.0, 3.1):
        verdicts.append(watch.healthy())
    assert verdicts == [True, True, False]


def test_how_long_an_engine_stands_still_is_told_when_looks_agree() -> None:
    pulse, clock, watch = watched()
    told = []
    for clock[0] in (10.0, 20.0, 30.0, 40.0):
        watch.healthy()
        told.append(watch.still_s)
    assert told == [0.0, 0.0, 0.0, 30.0]
    pulse.turns += 1
    watch.healthy()
    assert watch.still_s == 0.0


def test_a_watch_that_was_itself_held_gives_the_engine_time_to_move() -> None:
    pulse, clock, watch = watched()
    pulse.pending = True
    assert watch.healthy()
    clock[0] = 600.0
    assert watch.healthy()
    pulse.steps, pulse.turns, clock[0] = 1, 1, 600.25
    assert watch.healthy()
    for clock[0] in (604.0, 604.25, 604.5):
        last = watch.healthy()
    assert not last


def test_work_that_comes_after_a_long_rest_has_its_own_time() -> None:
    pulse, clock, watch = watched()
    for _ in range(10):
        clock[0] += 1.0
        pulse.turns += 1
        assert watch.healthy()
    pulse.pending = True
    clock[0] += 1.0
    pulse.turns += 1
    assert watch.healthy()


async def test_health_follows_the_watch() -> None:
    pulse, clock, watch = watched()
    seen: list[tuple[str, bool]] = []

    async def serving(value: bool) -> None:
        seen.append(("serving", value))

    async def live(value: bool) -> None:
        seen.append(("live", value))

    async def told(count: int) -> None:
        async with asyncio.timeout(30):
            while len(seen) < count:
                await asyncio.sleep(0.01)

    metrics = TargetMetrics(CollectorRegistry(), "m", "p")
    task = asyncio.create_task(keep_health(watch, lambda: True, serving, live, metrics))
    await told(1)
    clock[0] = 10.0
    await told(3)
    assert value_of(metrics.engine_stuck) == 1
    pulse.turns += 1
    await told(5)
    task.cancel()
    assert seen == [("serving", True), ("serving", False), ("live", False), ("serving", True), ("live", True)]


def test_sync_points_act_at_the_visit_asked_for() -> None:
    points = SyncPoints("verify:raise@3,emit:sleep=0@1")
    for _ in range(2):
        points.visit("verify")
    with pytest.raises(SyncPointError):
        points.visit("verify")
    points.visit("verify")
    points.visit("emit")
    SyncPoints.from_environment({}).visit("plan")


@pytest.mark.parametrize("wrong", ["verify", "verify:dance", "lunch:raise", "verify:raise@x"])
def test_a_wrong_sync_point_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"PACELINE_SYNC_POINTS|invalid literal"):
        SyncPoints(wrong)


@each(
    "wrong",
    [
        {"model": ""},
        {"device": "tpu"},
        {"dtype": "int8"},
        {"slots": 0},
        {"widths": (4, 8)},
        {"widths": (1, 8, 4)},
        {"block_size": 0},
        {"stall_s": 0.0},
        {"handoff": "post"},
        {"handoff": "host", "drafter_memory": "none"},
        {"drafter_memory": "some"},
        {"drafter_memory": "none", "drafter_model": "d"},
        {"watchdog_s": -1.0},
        {"grpc": "127.0.0.1:0"},
        {"grpc": "0.0.0.0:1", "tls_cert": "c", "tls_key": "k"},
        {"session_secret": "too short", "grpc": "127.0.0.1:0"},
        {"tls_ca": "ca"},
        {"tls_cert": "c"},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(PacelineError) as refused:
        TargetSettings(**{"model": "m", **wrong})  # type: ignore[arg-type]
    assert refused.value.field == next(iter(wrong))


def test_a_tcp_listener_needs_a_proof_or_the_word_that_none_is_wanted() -> None:
    tls = {"tls_cert": "c", "tls_key": "k", "tls_ca": "ca"}
    for proof in ({"insecure": True}, {"session_secret": "0123456789abcdef"}, tls):
        TargetSettings(model="m", grpc="127.0.0.1:0", **proof)
    TargetSettings(model="m", grpc="unix:/run/t.sock")


def test_the_watchdog_follows_the_device() -> None:
    assert TargetSettings(model="m").watchdog == 1.0
    assert TargetSettings(model="m", device="cuda").watchdog == 0.25
    assert TargetSettings(model="m", watchdog_s=7.0).watchdog == 7.0
