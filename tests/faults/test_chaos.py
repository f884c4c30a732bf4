"""The rig of `make chaos` in small, without Ray: streams through two gateways while one process after another ends."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.bench.chaos.clients import Ask, Clients, StreamError, read_generate
from tests.bench.chaos.waves import Waves
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS, SPREAD_S = 6, 60, 0.5
GENERATES = 3
"""Every third number is asked over gRPC, which is all that the gateways of this fleet serve."""

Struck = tuple[str, Callable[[], Awaitable[None]]]


class Door:
    """One of the gateways; the first one may be killed, and is started anew."""

    def __init__(self, stub: Callable[[], Any]) -> None:
        self.lives = 1
        self.killed: set[int] = set()
        self._stub = stub

    def excuses(self, lives: int, begun: bool) -> bool:
        return lives in self.killed

    async def read(self, ask: Ask, key: str, begun: Callable[[], None], off: bool = False) -> str:
        if self.lives in self.killed:
            raise StreamError("UNAVAILABLE", "another one takes its place", False)
        return await read_generate(self._stub(), ask, key, begun, off)


class Small:
    """Two pairs and two gateways."""

    def __init__(self, fleet: Fleet, second: Any) -> None:
        self.kept: list[str] = []
        self._fleet = fleet
        self.doors = [Door(lambda: fleet.stub), Door(lambda: second)]

    async def kill_drafter(self) -> None:
        pair = self._fleet.pairs[0]
        await asyncio.to_thread(pair.kill_drafter, len(pair.drafters) - 1)
        pair.turn_to(pair.add_drafter())

    async def kill_target(self) -> None:
        self._fleet.pairs[1].target.process.send_signal(signal.SIGKILL)

    async def stop_target(self) -> None:
        """Until it is replaced."""
        self._fleet.pairs[0].target.process.send_signal(signal.SIGSTOP)

    async def kill_gateway(self) -> None:
        first = self.doors[0]
        first.killed.add(first.lives)
        self._fleet.gateway.process.kill()

    async def leave_target(self) -> None:
        self._fleet.pairs[0].target.process.terminate()

    async def healed(self) -> None:
        if self._fleet.gateway.process.poll() is not None:
            self._fleet.start_gateway()
            await self._fleet.connect()
            self.doors[0].lives += 1
        for index, pair in self._fleet.pairs.items():
            if pair.target.process.poll() is not None or is_stopped(pair.target.process.pid):
                await self._fleet.replace_pair(index)

    async def leaks(self) -> dict[str, int]:
        """Nothing, or it ends in a failure that says what."""
        await self._fleet.quiet()
        return {"slots": 0, "blocks": 0, "descriptors": 0}


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


@pytest_asyncio.fixture(loop_scope="session")
async def small(fleet: Fleet) -> AsyncIterator[Small]:
    async with fleet.another_gateway() as second:
        yield Small(fleet, second)


async def test_f15_no_fault_loses_or_changes_a_stream(
    small: Small, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    clients = Clients(small.doors, [Ask(GENERATES * number, TOKENS) for number in range(STREAMS)], "small")
    await clients.learn()
    waves = Waves(small, clients, rng, SPREAD_S)
    faults: list[Struck] = [
        ("kill drafter", small.kill_drafter),
        ("kill target", small.kill_target),
        ("kill gateway", small.kill_gateway),
    ]
    more: list[Struck] = [("stop target", small.stop_target), ("leave target", small.leave_target)]
    rounds = size(1, 10)
    await waves.run((faults if rounds == 1 else faults + more) * rounds)
    report = waves.report()
    assert report["ok"], (report, clients.found)
    assert clients.found.by_gateway > 0, "the kill met live streams"
    report_counts("chaos_streams", clients.found.streams)
