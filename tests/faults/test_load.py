"""L1 and L4: many requests of mixed lengths, half of them cancelled at random tokens, and clients that are killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from tests.faults.answers import Answer, request, same
from tests.faults.conftest import Size
from tests.faults.fleet import WAIT_S, Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
PROMPTS, PER_CLIENT = 12, 10


async def test_l1_l4_mixed_load_with_a_cancel_storm(
    fleet: Fleet, rng: random.Random, size: Size, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    """Every answer is the fault-free one or a prefix of it, ends once, and nothing is held afterwards."""
    at_once, longest = (64, 256) if full else (24, 48)
    expected = await fleet.expected(PROMPTS, longest)
    count = size(96, 1000)
    killed = max(count // (10 * PER_CLIENT), 1)
    jobs = [(rng.randrange(PROMPTS), rng.randint(1, longest), rng.random() < 0.5) for _ in range(count)]
    gate = asyncio.Semaphore(at_once)

    async def one(number: int, tokens: int, cancelled: bool, at: int) -> Answer:
        async with gate:
            return await fleet.ask(request(number, tokens), cancel_at=at if cancelled else 1 << 30)

    killing = asyncio.create_task(_kill_clients(fleet.gateway_address, killed, longest, rng))
    answers = await asyncio.gather(*(one(*job, rng.randint(1, job[1])) for job in jobs))
    await killing
    for (number, tokens, cancelled), answer in zip(jobs, answers, strict=True):
        wanted = expected[number].tokens[:tokens]
        if answer.final is not None:
            assert answer.tokens == wanted
        else:
            assert cancelled
            assert answer.code is grpc.StatusCode.CANCELLED
            assert answer.tokens == wanted[: len(answer.tokens)]
    await fleet.quiet()
    assert same(await fleet.ask(request(0, longest)), expected[0])
    report_counts("load_requests", count)
    report_counts("load_cancelled", sum(answer.final is None for answer in answers))
    report_counts("load_of_killed_clients", killed * PER_CLIENT)


async def _kill_clients(address: str, count: int, tokens: int, rng: random.Random) -> None:
    """One client process after another begins its streams and is killed in the midst of them."""
    context = multiprocessing.get_context("spawn")
    for _ in range(count):
        here, there = context.Pipe()
        client = context.Process(target=read_streams, args=(address, tokens, there), daemon=True)
        client.start()
        assert await asyncio.to_thread(here.poll, WAIT_S), "the client's streams run"
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        client.kill()
        await asyncio.to_thread(client.join)


def read_streams(address: str, tokens: int, running: Connection) -> None:
    """A client's process: says when all of its streams have begun, and reads on."""
    asyncio.run(_read_streams(address, tokens, running))


async def _read_streams(address: str, tokens: int, running: Connection) -> None:
    async with connect(address) as channel:
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        calls = [stub.Generate(request(number, tokens)) for number in range(PER_CLIENT)]
        await asyncio.gather(*(call.read() for call in calls))
        running.send(True)
        await asyncio.sleep(WAIT_S)
