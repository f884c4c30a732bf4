"""F1: drafters are killed under live streams. Clients see nothing but the same text."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable

import pytest

from tests.faults.answers import same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet
from tests.support.warm import START_S

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, ALL, TOKENS = 8, 16, 120


async def test_f1_drafters_killed_under_live_streams(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    expected = await fleet.expected(count := size.at_once(STREAMS, ALL), TOKENS)
    spares = {index: pair.add_drafter() for index, pair in fleet.pairs.items()}
    back: list[float] = []
    for kill in range(size(2, 30)):
        index = kill % len(fleet.pairs)
        pair = fleet.pairs[index]
        await asyncio.to_thread(pair.drafters[spares[index]].bound, START_S)
        before = (await asyncio.to_thread(pair.describe)).generation
        streams = await fleet.begin_all(count, TOKENS)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        killed = time.monotonic()
        await asyncio.to_thread(pair.kill_drafter, spares[index] - 1)
        pair.turn_to(spares[index])
        await asyncio.to_thread(pair.wait_attached, before + 1)
        back.append(time.monotonic() - killed)
        for stream, wanted in zip(streams, expected, strict=True):
            assert same(await stream.task, wanted)
        spares[index] = pair.add_drafter()
    await fleet.quiet()
    report_counts("drafter_kills", len(back))
    print(f"F1: {len(back)} kills; attached again after median {statistics.median(back):.2f} s, max {max(back):.2f} s")
