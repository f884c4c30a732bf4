"""Controllers behind one DNS name, with names and streams that the test holds in its hands."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from services.gateway.fleet import sources
from services.gateway.fleet.pairs import PairEntry
from services.gateway.fleet.sources import Report, Source
from services.gateway.fleet.watch_dns import WatchDnsSource


class Stream:
    """A controller's stream that speaks when told to."""

    def __init__(self) -> None:
        self.report: Report | None = None

    async def run(self, report: Report) -> None:
        self.report = report
        await asyncio.Event().wait()


class Heard:
    """Keeps the latest list."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def publish(self, entries: Sequence[PairEntry]) -> None:
        self.ids = [entry.pair_id for entry in entries]

    def lost(self, error: Exception) -> None:
        raise AssertionError(error)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


async def test_every_resolved_controller_is_watched_and_a_broken_one_that_left_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = ["10.0.0.1:50050", "10.0.0.2:50050"]
    streams: dict[str, Stream] = {}

    async def resolve(_: sources.DnsSource) -> list[PairEntry]:
        return [PairEntry(address) for address in addresses]

    def dial(address: str) -> Source:
        return streams.setdefault(address, Stream())

    monkeypatch.setattr(sources.DnsSource, "_resolve", resolve)
    heard = Heard()
    running = asyncio.create_task(WatchDnsSource("workers:50050", 0.01, dial).run(heard))
    await until(lambda: len(streams) == 2 and all(stream.report for stream in streams.values()))
    for index, address in enumerate(addresses):
        report = streams[address].report
        assert report is not None
        report.publish([PairEntry(f"10.0.0.{index + 1}:50061", f"pod-{index}-pair-0")])
    assert heard.ids == ["pod-0-pair-0", "pod-1-pair-0"]

    gone = addresses.pop()
    await asyncio.sleep(0.1)
    assert heard.ids == ["pod-0-pair-0", "pod-1-pair-0"], "a live stream stays although the name dropped it"
    report = streams[gone].report
    assert report is not None
    report.lost(OSError("gone"))
    await until(lambda: heard.ids == ["pod-0-pair-0"])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
