"""The merge of fleet sources, and what a lost source leaves behind."""

import asyncio
import itertools
import random
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import GatewayMetrics
from services.common.serving.tls import Peers
from services.gateway.fleet.directory import Directory
from services.gateway.fleet.outage import Outage
from services.gateway.fleet.pairs import PairEntry, SourceList, merge
from services.gateway.fleet.sources import DnsSource, Report, Source, StaticSource, WatchSource
from tests.support.metrics import value_of
from tests.support.ports import free_port
from tests.support.told import told

FLEET = "services.gateway.fleet"


def test_the_newest_list_that_names_a_pair_decides() -> None:
    old, new = PairEntry("h:1", "a"), PairEntry("h:2", "a")
    for lists in itertools.permutations([SourceList(1, (old,)), SourceList(2, (new,))]):
        assert merge(lists) == {"a": new}


def test_a_bare_address_yields_to_an_entry_with_an_id() -> None:
    named, bare, other = PairEntry("h:1", "a"), PairEntry("h:1"), PairEntry("h:2")
    for one, two in itertools.permutations([SourceList(1, (named,)), SourceList(2, (bare, other))]):
        assert merge([one, two]) == {"a": named, "@h:2": other}


def test_merging_neither_loses_nor_doubles_pairs() -> None:
    random_numbers = random.Random(3)
    for _ in range(500):
        lists = []
        for version in range(3):
            ids = random_numbers.sample(range(6), random_numbers.randint(0, 6))
            lists.append(SourceList(version, tuple(PairEntry(f"h:{index}", f"p{index}") for index in ids)))
        named = {entry.pair_id for one in lists for entry in one.entries}
        assert set(merge(lists)) == named


class Failing:
    """Fails at first, then lists one pair."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, report: Report) -> None:
        self.runs += 1
        if self.runs == 1:
            raise RuntimeError("a defect")
        report.publish([PairEntry("h:9", "z")])


async def test_a_source_that_fails_is_begun_again_and_spares_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.fleet.directory.RESTART_S", 0.01)
    seen: list[Mapping[str, PairEntry]] = []
    sources: list[Source] = [Failing(), StaticSource(["h:1"])]
    await Directory(sources, seen.append, GatewayMetrics(CollectorRegistry(), "m")).run()
    assert set(seen[-1]) == {"z", "@h:1"}


def test_a_lost_source_keeps_its_last_list() -> None:
    seen: list[Mapping[str, PairEntry]] = []
    metrics = GatewayMetrics(CollectorRegistry(), "m")
    directory = Directory([StaticSource([]), StaticSource([])], seen.append, metrics)
    first, second = directory._seats
    first.publish([PairEntry("h:1", "a")])
    second.publish([PairEntry("h:2", "b")])
    first.lost(OSError("gone"))
    second.publish([PairEntry("h:3", "c")])
    assert set(seen[-1]) == {"a", "c"}
    assert value_of(metrics.gateway_fleet_sources["live"]) == 1
    assert value_of(metrics.gateway_fleet_sources["stale"]) == 1
    first.publish([])
    assert set(seen[-1]) == {"c"}


def test_an_outage_is_told_once_and_then_seldom(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = Outage("controller 127.0.0.1:1", lambda: now)

    def seconds(until: float) -> list[int]:
        """Fails twice a second until then; the seconds at which that was told."""
        nonlocal now
        caplog.clear()
        while now < until:
            outage.goes_on(OSError("refused"))
            now += 0.5
        data: list[Any] = [record.__dict__["data"] for record in told(caplog, FLEET)]
        assert all((one["source"], one["error"]) == ("controller 127.0.0.1:1", "refused") for one in data)
        return [one["seconds"] for one in data]

    assert seconds(600.0) == [5], "a controller that starts a little later is not worth a line"
    assert seconds(1300.0) == [605, 1205]
    caplog.clear()
    outage.over()
    outage.over()
    said = [record.getMessage() for record in told(caplog, FLEET)]
    assert said == ["fleet source answers again"], "its end is told once"
    assert seconds(1400.0) == [0], "one that answered before is missed at once"


def test_an_outage_that_nobody_was_told_of_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = Outage("controller 127.0.0.1:1", lambda: now)
    outage.goes_on(OSError("refused"))
    outage.over()
    assert told(caplog, FLEET) == []


@asynccontextmanager
async def a_port_of_another_service() -> AsyncIterator[str]:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


async def first_warning(source: Source, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    directory = Directory([source], lambda pairs: None, GatewayMetrics(CollectorRegistry(), "m"))
    running = asyncio.create_task(directory.run())
    async with asyncio.timeout(30):
        while not told(caplog, FLEET):
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    (record,) = told(caplog, FLEET)
    data: dict[str, Any] = record.__dict__["data"]
    return data


async def test_a_wrong_and_a_dead_watch_address_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("services.gateway.fleet.outage.PATIENCE_S", 0.2)
    dead = f"127.0.0.1:{free_port()}"
    said = await first_warning(WatchSource(dead, Peers()), caplog)
    assert said["source"] == f"controller {dead}"
    assert said["error"].startswith("UNAVAILABLE: ")
    caplog.clear()
    async with a_port_of_another_service() as wrong:
        said = await first_warning(WatchSource(wrong, Peers()), caplog)
    assert (said["source"], said["error"].split(":")[0]) == (f"controller {wrong}", "UNIMPLEMENTED")


async def test_a_name_is_all_targets_that_it_resolves_to_and_one_that_fails_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [["10.0.0.2", "10.0.0.1", "fd00::1"], None, ["10.0.0.1"]]

    async def getaddrinfo(host: str, port: int, type: int) -> list[tuple[object, ...]]:  # noqa: A002 (as in socket)
        hosts = answers.pop(0) if len(answers) > 1 else answers[0]
        if hosts is None:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, type, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    seen: list[list[str]] = []
    directory = Directory(
        [DnsSource("targets:9", 0.005)],
        lambda pairs: seen.append([pair.address for pair in pairs.values()]),
        GatewayMetrics(CollectorRegistry(), "m"),
    )
    running = asyncio.create_task(directory.run())
    async with asyncio.timeout(30):
        while len(seen) < 2 or seen[-1] == seen[0]:
            await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert seen[0] == ["10.0.0.1:9", "10.0.0.2:9", "[fd00::1]:9"]
    assert all(each in (seen[0], ["10.0.0.1:9"]) for each in seen)
