"""The embedded hybrid pair: targets and drafters are killed in turn, and streams say the same text."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from deploy.demo import HYBRID
from tests.faults.answers import migrations, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet, running_fleet
from tests.support.tiny_checkpoints import TinyPair

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.whole]
STREAMS, TOKENS = 8, 80


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["drafter", "target"], ids=["dflash", "mtp"])
async def hybrids(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    """Two such pairs and a gateway; one drafts by a model, or the head in the target's own folder, one by the text."""
    async with running_fleet(2, ("--slots", "8"), models=TinyPair(HYBRID / "target", HYBRID / request.param)) as made:
        yield made


async def test_hybrid_targets_and_drafters_killed_under_live_streams(
    hybrids: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    expected = await hybrids.expected(STREAMS, TOKENS)
    kills, moved = size(1, 30), 0
    for kill in range(2 * kills):
        index, of_target = kill // 2 % 2, kill % 2 == 0
        streams = await hybrids.begin_all(STREAMS, TOKENS)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        pair = hybrids.pairs[index]
        victim = pair.target if of_target else pair.drafter
        victim.process.send_signal(signal.SIGKILL)
        answers = [await stream.task for stream in streams]
        for answer, wanted in zip(answers, expected, strict=True):
            assert same(answer, wanted)
        moved += migrations(answers)
        await hybrids.replace_pair(index)
    await hybrids.quiet()
    assert moved > 0, "kills met live streams"
    report_counts("hybrid_kills_a_side", kills)
    report_counts("hybrid_streams_moved", moved)
