"""A DNS name that resolves to many fleet controllers, such as the headless service of worker pods."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from services.gateway.fleet.pairs import PairEntry
from services.gateway.fleet.sources import DnsSource, Report, Source


class Watcher:
    """One controller's stream and its last list."""

    def __init__(self, source: Source, changed: Callable[[], None]) -> None:
        """Runs nothing before `start`."""
        self._source = source
        self._changed = changed
        self.live = False
        self.entries: tuple[PairEntry, ...] = ()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follows the controller in the background."""
        self._task = asyncio.create_task(self._source.run(self))

    async def stop(self) -> None:
        """Ends the stream."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def publish(self, entries: Sequence[PairEntry]) -> None:
        """The controller's whole list."""
        self.live, self.entries = True, tuple(entries)
        self._changed()

    def lost(self, error: Exception) -> None:
        """The stream broke; the last list stays in force."""
        self.live = False


class WatchDnsSource:
    """Watches every controller that the name resolves to; forgets one that has left the name when its stream breaks."""

    def __init__(self, name: str, interval_s: float, dial: Callable[[str], Source]) -> None:
        """Takes host:port, and what makes a source of one address."""
        self._dns = DnsSource(name, interval_s)
        self._dial = dial
        self._watchers: dict[str, Watcher] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    async def run(self, report: Report) -> None:
        """Publishes the lists of all controllers as one, until cancelled."""
        resolved = Resolved(lambda addresses: self._follow(addresses, report), report)
        try:
            await self._dns.run(resolved)
        finally:
            await asyncio.gather(*(watcher.stop() for watcher in self._watchers.values()))

    def _follow(self, addresses: frozenset[str], report: Report) -> None:
        for address in addresses - self._watchers.keys():
            watcher = Watcher(self._dial(address), lambda: self._publish(report))
            self._watchers[address] = watcher
            watcher.start()
        gone = [a for a, watcher in self._watchers.items() if a not in addresses and not watcher.live]
        for address in gone:
            self._retire(self._watchers.pop(address))
        if gone:
            self._publish(report)

    def _retire(self, watcher: Watcher) -> None:
        task = asyncio.create_task(watcher.stop())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _publish(self, report: Report) -> None:
        report.publish(joined(self._watchers))


class Resolved:
    """Takes the addresses that the name resolves to."""

    def __init__(self, follow: Callable[[frozenset[str]], None], report: Report) -> None:
        """Passes failures on to the report of the whole source."""
        self._follow = follow
        self._report = report

    def publish(self, entries: Sequence[PairEntry]) -> None:
        """The addresses of controllers."""
        self._follow(frozenset(entry.address for entry in entries))

    def lost(self, error: Exception) -> None:
        """The name does not resolve."""
        self._report.lost(error)


def joined(watchers: Mapping[str, Watcher]) -> list[PairEntry]:
    """All pairs of all controllers, in the order of their addresses."""
    return [entry for address in sorted(watchers) for entry in watchers[address].entries]
