"""F6: a gateway is killed under live streams. Whatever it had begun ends, and its requests can be asked again."""

from __future__ import annotations

import statistics
import time

import grpc
import pytest

from tests.faults.answers import judge, request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, ALL, TOKENS = 8, 16, 100


async def test_f6_a_killed_gateway_leaves_nothing_behind(fleet: Fleet, size: Size) -> None:
    expected = await fleet.expected(count := size.at_once(STREAMS, ALL), TOKENS)
    released: list[float] = []
    repeated = 0
    for trial in range(size(1, 20)):
        streams = await fleet.begin_all(count, TOKENS)
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
