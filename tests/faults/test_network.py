"""F8: the network between gateway and target fails. Streams go on elsewhere, or wait, with the same text."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.answers import Answer, judge, migrations, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet
from tests.faults.proxy import FaultProxy
from tests.integration.gateway_stack import ask_for, harness
from tests.support.fakes_target import FakeTarget
from tests.support.warm import START_S

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS = 8, 100
FOUND_S, HEALED_S = 3.0, 2.0


@asynccontextmanager
async def _proxied(fleet: Fleet) -> AsyncIterator[list[FaultProxy]]:
    """Every pair is reached through a proxy; afterwards directly again."""
    proxies = [FaultProxy(*_split(pair.bound["grpc"])) for pair in fleet.pairs.values()]
    try:
        for index, proxy in zip(fleet.pairs, proxies, strict=True):
            fleet.routes[index] = await proxy.start()
        await fleet.announce()
        await _all_ready(fleet, proxies)
        yield proxies
    finally:
        for proxy in proxies:
            proxy.heal()
        fleet.routes.clear()
        await fleet.announce()
        await fleet.until(lambda: _ready_targets(fleet) == len(fleet.pairs), "all targets ready")
        for proxy in proxies:
            await proxy.stop()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def _all_ready(fleet: Fleet, proxies: list[FaultProxy]) -> float:
    """Waits until the gateway reaches all targets through their proxies; returns the seconds."""
    start = time.monotonic()
    await fleet.until(
        lambda: all(proxy.connections for proxy in proxies) and _ready_targets(fleet) == len(fleet.pairs),
        "all targets ready",
    )
    return time.monotonic() - start


def _ready_targets(fleet: Fleet) -> int:
    address = fleet.gateway.bound(START_S)["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return int(float(next(line.split()[-1] for line in lines if line.startswith("paceline_gateway_ready_targets{"))))


async def _streams_under(fleet: Fleet, wanted: list[Answer], fault: Callable[[], Any]) -> list[Answer]:
    """Starts streams, brings the fault about when each of them runs, and checks what they give."""
    streams = await fleet.begin_all(STREAMS, TOKENS)
    fault()
    answers = [await stream.task for stream in streams]
    for answer, expected in zip(answers, wanted, strict=True):
        assert same(answer, expected)
    return answers


def _until_met(proxies: list[FaultProxy], trials: int, moves: list[int]) -> Iterator[FaultProxy]:
    """One link after another: at least `trials` of them, and a few more while no fault has met a live stream."""
    for trial in range(trials + 6):
        if trial >= trials and sum(moves) > 0:
            return
        yield proxies[trial % len(proxies)]


PARTITIONS = {
    "both ways": {"hold_to_server": True, "hold_to_client": True},
    "towards the gateway": {"hold_to_client": True},
}
SLOW: dict[str, dict[str, float]] = {
    "200 ms latency": {"latency_s": 0.2},
    "256 kbit/s": {"bytes_per_s": 32_000.0},
    "slices of 3 bytes": {"slice_bytes": 3},
}


async def test_f8_partitions_move_streams_and_heal(
    fleet: Fleet, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    wanted = await fleet.expected(STREAMS, TOKENS)
    async with _proxied(fleet) as proxies:
        for kind, faults in PARTITIONS.items():
            moves: list[int] = []
            pauses, heals = [], []
            for proxy in _until_met(proxies, size(1, 5), moves):
                answers = await _streams_under(fleet, wanted, partial(proxy.set, **faults))
                proxy.heal()
                heals.append(await _all_ready(fleet, proxies))
                pauses.append(max(answer.longest_gap_s for answer in answers))
                moves.append(migrations(answers))
                await fleet.quiet()
            assert sum(moves) > 0
            report_counts("partitions", len(moves))
            judge(pauses, FOUND_S)
            judge(heals, HEALED_S)
            print(f"F8 {kind}: {len(moves)}; longest pause: median {statistics.median(pauses):.1f} s; ", end="")
            print(f"back after the link healed: median {statistics.median(heals):.1f} s")


async def test_f8_resets_move_streams(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    wanted = await fleet.expected(STREAMS, TOKENS)
    moves: list[int] = []
    async with _proxied(fleet) as proxies:
        for proxy in _until_met(proxies, size(2, 5), moves):
            await asyncio.sleep(rng.uniform(0.0, 0.2))
            moves.append(migrations(await _streams_under(fleet, wanted, proxy.reset)))
            await _all_ready(fleet, proxies)
            await fleet.quiet()
    assert sum(moves) > 0
    report_counts("resets", len(moves))


async def test_f8_slow_links_change_no_text(fleet: Fleet, size: Size, full: bool) -> None:
    wanted = await fleet.expected(STREAMS, TOKENS)
    async with _proxied(fleet) as proxies:
        for kind, faults in SLOW.items():
            for proxy in proxies:
                proxy.heal()
                proxy.set(**faults)
            for _ in range(size(1, 5)):
                moved = migrations(await _streams_under(fleet, wanted, lambda: None))
                assert moved == 0 or not full, f"{kind}: a slow link was taken for a lost target"
    await fleet.quiet()


@pytest.mark.whole
async def test_a_quiet_stream_lives_under_a_ping_every_second(tmp_path: Path, size: Size) -> None:
    """A request waits for a slot; its client pings all the while, as some libraries do by default."""
    target = FakeTarget(slots=0)
    eager = (("grpc.keepalive_time_ms", 1000), ("grpc.http2.max_pings_without_data", 0))
    async with harness(tmp_path, [target], client_options=eager) as one:
        waiting = asyncio.create_task(one.ask(ask_for(), timeout=120.0))
        await asyncio.sleep(size(5, 60))
        assert not waiting.done()
        target.slots = 8
        assert (await waiting).final is not None
