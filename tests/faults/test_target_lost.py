"""F4, F5 and F7: targets are killed, stopped, stuck or told to go. Streams continue elsewhere with the same text."""

from __future__ import annotations

import asyncio
import random
import signal
import statistics
import time
from collections.abc import Callable

import pytest
from grpc_health.v1 import health_pb2

from tests.faults.conftest import Size
from tests.faults.fleet import Fleet, request, same

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS = 16, 100


async def test_f4_targets_killed_under_live_streams(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    expected = await fleet.expected(STREAMS, TOKENS)
    gaps: list[float] = []
    for kill in range(size(1, 30)):
        streams = await fleet.begin_all(STREAMS, TOKENS)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        victim = fleet.pairs[kill % 2].target.process
        victim.send_signal(signal.SIGKILL)
        for stream, wanted in zip(streams, expected, strict=True):
            assert same(await stream.task, wanted)
        gaps.append(max(stream.answer.longest_gap_s for stream in streams))
        await fleet.replace_pair(kill % 2)
    await fleet.quiet()
    report_counts("target_kills", len(gaps))
    print(f"F4: {len(gaps)} kills; longest pause: median {statistics.median(gaps):.2f} s, max {max(gaps):.2f} s")


async def test_f5_a_stopped_target_and_a_stuck_engine_are_left_behind(fleet: Fleet, size: Size) -> None:
    """Odd trials stop the process; even ones hold the engine in mid-round, which the process's own health must tell."""
    expected = await fleet.expected(STREAMS, TOKENS)
    down = health_pb2.HealthCheckResponse.NOT_SERVING
    for trial in range(size(1, 10)):
        pair = fleet.pairs[0]
        if trial % 2 == 0:
            await fleet.replace_pair(0, "plan:pace=0.01,verify:sleep=600@30")
            pair = fleet.pairs[0]
        streams = await fleet.begin_all(STREAMS, TOKENS)
        if trial % 2 == 0:
            for service in ("liveness", ""):
                await fleet.until(lambda: pair.health(service) == down, f"{service} not serving")  # noqa: B023
        else:
            pair.target.process.send_signal(signal.SIGSTOP)
        for stream, wanted in zip(streams, expected, strict=True):
            assert same(await stream.task, wanted)
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
    for _ in range(size(1, 20)):
        streams = await fleet.begin_all(STREAMS, TOKENS)
        fleet.gateway.process.kill()
        killed = time.monotonic()
        for stream, wanted in zip(streams, expected, strict=True):
            answer = await stream.task
            assert answer.tokens == wanted.tokens[: len(answer.tokens)], "what came is a prefix"
        await fleet.quiet()
        released.append(time.monotonic() - killed)
        fleet.start_gateway()
        await fleet.connect()
        assert same(await fleet.ask(request(0, TOKENS)), expected[0])
    print(f"F6: {len(released)} kills; everything released after median {statistics.median(released):.2f} s")
