"""F4, F5 and F7: targets are killed, stopped, stuck or told to go. Streams continue elsewhere with the same text."""

from __future__ import annotations

import asyncio
import random
import signal
import statistics
import time
from collections.abc import Callable
from itertools import count

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.faults.answers import judge, migrations, request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet
from tests.integration.pair import PairProcesses

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS, LONGER = 16, 100, 120


async def test_f4_targets_killed_under_live_streams(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    expected = await fleet.expected(STREAMS, LONGER)
    gaps: list[float] = []
    freed: list[float] = []
    ready: list[float] = []
    moved = 0
    for kill in range(size(1, 30)):
        streams = await fleet.begin_all(STREAMS, LONGER)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        freed.append(await _kill_target(fleet, fleet.pairs[kill % 2]))
        answers = [await stream.task for stream in streams]
        for answer, wanted in zip(answers, expected, strict=True):
            assert same(answer, wanted)
        moved += migrations(answers)
        gaps.append(max(answer.longest_gap_s for answer in answers))
        began = time.monotonic()
        await fleet.replace_pair(kill % 2)
        ready.append(time.monotonic() - began)
    await fleet.quiet()
    assert moved > 0, "kills met live streams"
    judge(freed, 1.0)
    judge(ready, 15.0)
    report_counts("target_kills", len(gaps))
    report_counts("target_kills_streams_moved", moved)
    print(f"F4: {len(gaps)} kills, {moved} streams moved; longest pause: ", end="")
    print(f"median {statistics.median(gaps):.2f} s, max {max(gaps):.2f} s; drafter free after ", end="")
    print(f"{statistics.median(freed):.2f} s; another pair ready after {statistics.median(ready):.1f} s")


async def _kill_target(fleet: Fleet, pair: PairProcesses) -> float:
    """Seconds until the drafter has let go of a target that is killed."""
    log = pair.drafters[-1].log
    before, killed = log.read_text().count("freed generation"), time.monotonic()
    pair.target.process.send_signal(signal.SIGKILL)
    await fleet.until(lambda: log.read_text().count("freed generation") > before, "a drafter set free")
    return time.monotonic() - killed


@pytest.mark.whole
async def test_f4_without_migration_a_killed_target_is_a_prompt_typed_error(fleet: Fleet, size: Size) -> None:
    """What came before is a prefix of the text, and the pair serves again."""
    expected = await fleet.expected(STREAMS, LONGER)
    ends: list[float] = []
    for kill in range(size(1, 10)):
        asked = [request(number, LONGER) for number in range(STREAMS)]
        for each in asked:
            each.migration = False
        streams = await fleet.begin_these(asked)
        killed = time.monotonic()
        fleet.pairs[kill % 2].target.process.send_signal(signal.SIGKILL)
        answers = [await stream.task for stream in streams]
        lost = [answer for answer in answers if answer.code is grpc.StatusCode.UNAVAILABLE]
        assert lost, "the kill met live streams"
        ends.append(max(answer.last for answer in lost) - killed)
        for answer, wanted in zip(answers, expected, strict=True):
            assert answer.tokens == wanted.tokens[: len(answer.tokens)]
            assert answer in lost or same(answer, wanted)
        await fleet.replace_pair(kill % 2)
    await fleet.quiet()
    judge(ends, 2.0)


# How a target stops to answer, by the sync points that its process starts with; a signal stops the first one.
HANGS = {
    "stopped process": "plan:pace=0.03",
    "stuck engine": "plan:pace=0.01,verify:sleep=600@12",
    "blocked event loop": "plan:pace=0.01,deliver:sleep=30@60",
}
FOUND_S, TOLD_S = 6.0, 5.0
# Numbers of requests that no test has sent before. The gateway sends a prompt where it was seen; those that have moved
# away from the victim would all begin on the other pair, and the fault would meet nothing.
FRESH = count(1000, STREAMS)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.whole if "loop" in kind else ()) for kind in HANGS]
)
async def test_f5_a_target_that_hangs_is_left_behind(fleet: Fleet, size: Size, kind: str) -> None:
    """Its streams go on elsewhere; an engine that is stuck is also told by the process's own health."""
    down = health_pb2.HealthCheckResponse.NOT_SERVING
    gaps: list[float] = []
    told: list[float] = []
    for _ in range(size(1, 5)):
        first = next(FRESH)
        expected = await fleet.expected(STREAMS, TOKENS, first)
        await fleet.replace_pair(0, HANGS[kind])
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
        assert migrations(answers) > 0, "the fault met a live stream"
        gaps.append(max(answer.longest_gap_s for answer in answers))
    await fleet.replace_pair(0)
    await fleet.quiet()
    judge(gaps, FOUND_S)
    judge(told or [0.0], TOLD_S)
    print(f"F5 {kind}: {len(gaps)}; longest pause: median {statistics.median(gaps):.1f} s, max {max(gaps):.1f} s")


@pytest.mark.whole
async def test_f5_a_target_that_was_only_held_serves_again(fleet: Fleet, size: Size) -> None:
    """Stopped for less than the gateway's patience it keeps its streams; stopped for longer it is taken back."""
    await fleet.replace_pair(0, "plan:pace=0.03")
    process = fleet.pairs[0].target.process
    for trial in range(size(1, 10)):
        held_s, moves = (2.0, False) if trial % 2 == 0 else (8.0, True)
        first = next(FRESH)
        expected = await fleet.expected(STREAMS, TOKENS, first)
        streams = await fleet.begin_all(STREAMS, TOKENS, first)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(held_s)
        process.send_signal(signal.SIGCONT)
        answers = [await stream.task for stream in streams]
        for answer, wanted in zip(answers, expected, strict=True):
            assert same(answer, wanted)
        assert (migrations(answers) > 0) == moves
        assert max(answer.longest_gap_s for answer in answers) > 1.0, "the pause met a live stream"
        await fleet.wait_routed()
        await fleet.quiet()
    await fleet.replace_pair(0)


# Sync points, flags and the seconds that nothing comes: a target whose own bound is higher than one round of seven
# seconds answers when asked; one whose event loop is held has its connections answered.
SLOW = {
    "one long round": ("plan:pace=0.01,verify:sleep=7@12", ("--stall-s", "20"), 6.0),
    "a loop held for a while": ("plan:pace=0.01,deliver:sleep=3.3@60", (), 3.0),
}


@pytest.mark.whole
@pytest.mark.parametrize("kind", SLOW)
async def test_f5_a_target_that_is_slow_but_lives_is_kept(fleet: Fleet, kind: str) -> None:
    points, flags, pause_s = SLOW[kind]
    first = next(FRESH)
    expected = await fleet.expected(STREAMS, TOKENS, first)
    await fleet.replace_pair(0, points, flags)
    streams = await fleet.begin_all(STREAMS, TOKENS, first)
    answers = [await stream.task for stream in streams]
    for answer, wanted in zip(answers, expected, strict=True):
        assert same(answer, wanted)
    assert max(answer.longest_gap_s for answer in answers) > pause_s, "the fault met a live stream"
    assert migrations(answers) == 0
    await fleet.replace_pair(0)
    await fleet.quiet()


async def test_f7_each_process_leaves_in_turn_and_no_stream_notices(fleet: Fleet, size: Size) -> None:
    expected = await fleet.expected(STREAMS, TOKENS)
    for turn in range(size(1, 10)):
        for index in (0, 1) if turn else (0,):
            streams = await fleet.begin_all(STREAMS, TOKENS)
            leaving = fleet.pairs[index]
            leaving.drafters[0].process.terminate()
            leaving.target.process.terminate()
            for stream, wanted in zip(streams, expected, strict=True):
                assert same(await stream.task, wanted)
            assert await asyncio.to_thread(leaving.target.process.wait, 60) == 0
            assert await asyncio.to_thread(leaving.drafters[0].process.wait, 60) == 0
            await fleet.replace_pair(index)
        streams = await fleet.begin_all(STREAMS, TOKENS)
        old = fleet.gateway.process
        old.terminate()
        for stream, wanted in zip(streams, expected, strict=True):
            assert same(await stream.task, wanted)
        assert await asyncio.to_thread(old.wait, 60) == 0
        fleet.start_gateway()
        await fleet.connect()
    await fleet.quiet()


async def test_f6_a_killed_gateway_leaves_nothing_behind(fleet: Fleet, size: Size) -> None:
    expected = await fleet.expected(STREAMS, TOKENS)
    released: list[float] = []
    repeated = 0
    for trial in range(size(1, 20)):
        streams = await fleet.begin_all(STREAMS, TOKENS)
        keyed = request(0, TOKENS)
        keyed.idempotency_key = f"once-{trial}"
        (first,) = await fleet.begin_these([keyed])
        fleet.gateway.process.kill()
        killed = time.monotonic()
        for stream, wanted in zip(streams, expected, strict=True):
            answer = await stream.task
            assert answer.tokens == wanted.tokens[: len(answer.tokens)], "what came is a prefix"
        await first.task
        await fleet.released()
        released.append(time.monotonic() - killed)
        fleet.start_gateway()
        await fleet.connect()
        again = await fleet.ask(keyed)
        repeated += again.code is grpc.StatusCode.ALREADY_EXISTS
        assert again.code is grpc.StatusCode.ALREADY_EXISTS or same(again, expected[0]), "the key ran once at a time"
        assert same(await fleet.ask(request(0, TOKENS)), expected[0])
    await fleet.quiet()
    judge(released, 2.0)
    print(f"F6: {len(released)} kills; everything released after median {statistics.median(released):.2f} s; ", end="")
    print(f"{repeated} retries of a key were told that it had run")
