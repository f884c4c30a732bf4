"""F12: other processes take the processors and memory. Streams become slower, and nothing is taken for dead."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.faults.answers import migrations, request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet
from tests.faults.rest import scrape

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS, SPINNERS = 16, 30, 4
TOUCHED_BYTES = 128 << 20


def spin() -> None:
    while True:
        sum(range(10_000))


def touch() -> None:
    while True:
        memory = bytearray(TOUCHED_BYTES)
        for at in range(0, len(memory), 4096):
            memory[at] = 1


@contextmanager
def pressure() -> Iterator[None]:
    """Busy processes beside: more than there are processors, and one that turns over memory."""
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=work, daemon=True) for work in (*[spin] * SPINNERS, touch)]
    try:
        for process in busy:
            process.start()
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


async def test_f12_pressure_raises_no_false_alarm(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    expected = await fleet.expected(STREAMS, TOKENS)
    served, slowest = 0, 0.0
    lost = fleet.gateway.log.read_text().count("target lost")
    with pressure():
        end = time.monotonic() + size(1, 120)
        while time.monotonic() < end:
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            streams = [fleet.begin(request(number, TOKENS)) for number in range(STREAMS)]
            answers = [await stream.task for stream in streams]
            for answer, wanted in zip(answers, expected, strict=True):
                assert same(answer, wanted)
            assert migrations(answers) == 0
            served += len(answers)
            slowest = max(slowest, *(answer.longest_gap_s for answer in answers))
            pages = [await asyncio.to_thread(scrape, pair.bound["metrics"]) for pair in fleet.pairs.values()]
            assert not any(page.get("paceline_engine_stuck", 0) for page in pages)
    await fleet.quiet()
    assert fleet.gateway.log.read_text().count("target lost") == lost
    report_counts("requests_under_pressure", served)
    print(f"F12: {served} requests; longest pause {slowest:.2f} s")
