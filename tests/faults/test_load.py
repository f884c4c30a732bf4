"""L1 and L4: many requests of mixed lengths, half of them cancelled at random tokens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import grpc
import pytest

from tests.faults.answers import Answer, request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
AT_ONCE, PROMPTS, LONGEST = 24, 12, 48


async def test_l1_l4_mixed_load_with_a_cancel_storm(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """Every answer is the fault-free one or a prefix of it, ends once, and nothing is held afterwards."""
    expected = await fleet.expected(PROMPTS, LONGEST)
    count = size(96, 1000)
    jobs = [(rng.randrange(PROMPTS), rng.randint(1, LONGEST), rng.random() < 0.5) for _ in range(count)]
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, tokens: int, cancelled: bool, at: int) -> Answer:
        async with gate:
            return await fleet.ask(request(number, tokens), cancel_at=at if cancelled else 1 << 30)

    answers = await asyncio.gather(*(one(*job, rng.randint(1, job[1])) for job in jobs))
    for (number, tokens, cancelled), answer in zip(jobs, answers, strict=True):
        wanted = expected[number].tokens[:tokens]
        if answer.final is not None:
            assert answer.tokens == wanted
        else:
            assert cancelled
            assert answer.code is grpc.StatusCode.CANCELLED
            assert answer.tokens == wanted[: len(answer.tokens)]
    await fleet.quiet()
    assert same(await fleet.ask(request(0, LONGEST)), expected[0])
    report_counts("load_requests", count)
    report_counts("load_cancelled", sum(answer.final is None for answer in answers))
