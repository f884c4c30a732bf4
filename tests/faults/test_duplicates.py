"""F6: idempotency keys over real targets that drain, die and come back under their id: a duplicate never runs."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2
from tests.faults.answers import request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
KEYS, ALL, TOKENS = 8, 20, 150


@pytest.mark.parametrize("fault", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.whole)])
async def test_f6_a_duplicate_is_refused_by_every_gateway(fleet: Fleet, size: Size, fault: signal.Signals) -> None:
    expected = await fleet.expected(count := size.at_once(KEYS, ALL), TOKENS)
    for trial in range(size(1, 5)):
        name = f"{fault.name}-{trial}"
        async with fleet.another_gateway() as other:
            firsts = await fleet.begin_these([keyed(name, number) for number in range(count)])
            leaving = fleet.pairs[trial % 2].target.process
            leaving.send_signal(fault)
            await refused(fleet, name, count, [fleet.stub, other] if fault is signal.SIGTERM else [fleet.stub])
            for first, wanted in zip(firsts, expected, strict=True):
                assert same(await first.task, wanted), "no stream ends as a duplicate of itself"
            assert await asyncio.to_thread(leaving.wait, 30) == (0 if fault is signal.SIGTERM else -fault)
            await refused(fleet, name, count, [fleet.stub, other])
            await fleet.replace_pair(trial % 2)
            await refused(fleet, name, count, [fleet.stub, other])
    await fleet.quiet()


def keyed(name: str, number: int) -> inference_pb2.GenerateRequest:
    asked = request(number, TOKENS)
    asked.idempotency_key = f"{name}-{number}"
    return asked


async def refused(fleet: Fleet, name: str, count: int, stubs: list[Any]) -> None:
    """The duplicate of every key is refused through every gateway."""
    calls = [fleet.ask(keyed(name, number), stub=stub) for stub in stubs for number in range(count)]
    for answer in await asyncio.gather(*calls):
        assert (answer.code, answer.tokens) == (grpc.StatusCode.ALREADY_EXISTS, [])
