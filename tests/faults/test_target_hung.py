"""F5: targets are stopped, stuck or slow. Streams leave those that hang, stay with the others, with the same text."""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from tests.faults.answers import judge, migrations, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet
from tests.faults.rest import scrape

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS = 16, 100

# How a target stops to answer, by the sync points that its process starts with; a signal stops the first one.
HANGS = {
    "stopped process": "plan:pace=0.03",
    "stuck engine": "plan:pace=0.01,verify:sleep=600@12",
    "blocked event loop": "plan:pace=0.01,deliver:sleep=30@60",
}
FOUND_S, TOLD_S = 6.0, 5.0
HEARD_S = 1.5
SPARE = 3
"""More trials, for on a busy machine the victim's streams may have ended before the others have begun."""
KEPT_S = 2.3
"""A target that was stopped for no longer keeps its streams: the gateway gives one up after 2.4 s at the soonest."""
# Numbers of requests that no test has sent before. The gateway sends a prompt where it was seen; those that have moved
# away from the victim would all begin on the other pair, and the fault would meet nothing.
FRESH = count(1000, STREAMS)


async def _replace_victim(fleet: Fleet, points: str, flags: tuple[str, ...] = ()) -> None:
    """Waits until the gateway has heard from the target that it speculates: before, it sends its requests elsewhere."""
    await fleet.replace_pair(0, points, flags)
    await asyncio.to_thread(fleet.pairs[0].wait_attached, 1)
    await asyncio.sleep(HEARD_S)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.whole if "loop" in kind else ()) for kind in HANGS]
)
async def test_f5_a_target_that_hangs_is_left_behind(fleet: Fleet, size: Size, kind: str) -> None:
    """Its streams go on elsewhere; an engine that is stuck is also told by the process's own health."""
    down = health_pb2.HealthCheckResponse.NOT_SERVING
    gaps: list[float] = []
    told: list[float] = []
    trials = size(1, 5)
    for _ in range(trials + SPARE):
        first = next(FRESH)
        expected = await fleet.expected(STREAMS, TOKENS, first)
        await _replace_victim(fleet, HANGS[kind])
        pair = fleet.pairs[0]
        streams = await fleet.begin_all(STREAMS, TOKENS, first)
        if kind == "stopped process":
            pair.target.process.send_signal(signal.SIGSTOP)
        if kind == "stuck engine":
            began = time.monotonic()
            for service in ("liveness", ""):
                await fleet.until(lambda: pair.health(service) == down, f"{service} not serving")  # noqa: B023
            told.append(time.monotonic() - began)
        answers = [await stream.task for stream in streams]
        for answer, wanted in zip(answers, expected, strict=True):
            assert same(answer, wanted)
        if migrations(answers):
            gaps.append(max(answer.longest_gap_s for answer in answers))
        if len(gaps) == trials:
            break
    assert len(gaps) == trials, "faults met live streams"
    await fleet.replace_pair(0)
    await fleet.quiet()
    judge(gaps, FOUND_S)
    judge(told or [0.0], TOLD_S)
    print(f"F5 {kind}: {len(gaps)}; longest pause: median {statistics.median(gaps):.1f} s, max {max(gaps):.1f} s")


@pytest.mark.whole
async def test_f5_a_target_that_was_only_held_serves_again(fleet: Fleet, size: Size) -> None:
    """Stopped for less than the gateway's patience it keeps its streams; stopped for longer it is taken back."""
    await _replace_victim(fleet, "plan:pace=0.03")
    judged, trials = 0, size(1, 10)
    for _ in range(trials + 2 * SPARE):
        held_s, moves = (2.0, False) if judged % 2 == 0 else (8.0, True)
        first = next(FRESH)
        expected = await fleet.expected(STREAMS, TOKENS, first)
        streams = await fleet.begin_all(STREAMS, TOKENS, first)
        took_s = await _hold(fleet.pairs[0].target.process, held_s)
        runs = (await asyncio.to_thread(scrape, fleet.pairs[0].bound["metrics"]))["paceline_running_requests"] > 0
        answers = [await stream.task for stream in streams]
        for answer, wanted in zip(answers, expected, strict=True):
            assert same(answer, wanted)
        await fleet.wait_routed()
        await fleet.quiet()
        if moves or (runs and took_s <= KEPT_S):
            assert (migrations(answers) > 0) == moves
            judged += 1
        if judged == trials:
            break
    assert judged == trials, "pauses of the meant length met live streams"
    await fleet.replace_pair(0)


async def _hold(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Stops a process for so long; for how long it was, as the machine may hold this one, too."""
    process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    await asyncio.sleep(seconds)
    process.send_signal(signal.SIGCONT)
    return time.monotonic() - stopped


# Sync points, flags, and for how long the gateway sees the target sleep: a target whose own bound is higher than one
# round of seven seconds answers when asked; one whose event loop is held has its connections answered.
SLOW = {
    "one long round": ("plan:pace=0.01,verify:sleep=7@12", ("--stall-s", "20"), 6.9),
    "a loop held for a while": ("plan:pace=0.01,deliver:sleep=3.3@60", (), 3.2),
}


@pytest.mark.whole
@pytest.mark.parametrize("kind", SLOW)
async def test_f5_a_target_that_is_slow_but_lives_is_kept(fleet: Fleet, kind: str) -> None:
    """The gateway sees all of the sleep but its end, and what follows when the target has had its turn."""
    points, flags, seen_s = SLOW[kind]
    first = next(FRESH)
    expected = await fleet.expected(STREAMS, TOKENS, first)
    await _replace_victim(fleet, points, flags)
    pair, gateway = fleet.pairs[0], fleet.gateway.process
    streams = await fleet.begin_all(STREAMS, TOKENS, first)
    await fleet.until(lambda: bool(_told(pair.target.log, "began")), "the target sleeps")
    await asyncio.sleep(_told(pair.target.log, "began")[0] + seen_s - time.monotonic())
    gateway.send_signal(signal.SIGSTOP)
    try:
        live = [stream for stream in streams if not stream.task.done()]
        await fleet.until(lambda: bool(_told(pair.target.log, "ended")), "the target goes on")
        await asyncio.to_thread(pair.describe)
    finally:
        gateway.send_signal(signal.SIGCONT)
    answers = [await stream.task for stream in streams]
    for answer, wanted in zip(answers, expected, strict=True):
        assert same(answer, wanted)
    assert live, "the fault met a live stream"
    assert migrations(answers) == 0
    await fleet.replace_pair(0)
    await fleet.quiet()


def _told(log: Path, what: str) -> list[float]:
    """When the target began or ended to sleep in its sync point, as it says itself.

    The pause that a client sees says less: one that the machine holds hears late of what came before.
    """
    lines = [json.loads(line) for line in log.read_text().splitlines() if "sync point" in line]
    return [line[what] for line in lines if what in line]
