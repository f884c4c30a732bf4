"""Runs all sources and tells one listener the merged list."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from services.common.metrics.catalogue import SOURCE_STATES, GatewayMetrics
from services.gateway.fleet.pairs import PairEntry, SourceList, merge
from services.gateway.fleet.sources import Source

Listener = Callable[[Mapping[str, PairEntry]], None]
log = logging.getLogger(__name__)
RESTART_S = 1.0


class Directory:
    """The merged fleet; `listener` gets the pairs by key whenever a source publishes."""

    def __init__(self, sources: Sequence[Source], listener: Listener, metrics: GatewayMetrics) -> None:
        """Takes sources that do not run yet."""
        self._seats = [Seat(source, self._gather) for source in sources]
        self._listener = listener
        self._metrics = metrics
        self._version = 0

    async def run(self) -> None:
        """Runs the sources until cancelled."""
        async with asyncio.TaskGroup() as group:
            for seat in self._seats:
                group.create_task(self._keep(seat))

    async def _keep(self, seat: "Seat") -> None:
        """Runs a source until it ends; starts one that fails again, without touching the others."""
        while True:
            try:
                return await seat.source.run(seat)
            except Exception as error:
                log.exception("fleet source failed")
                seat.lost(error)
                await asyncio.sleep(RESTART_S)

    def _gather(self, seat: "Seat", entries: Sequence[PairEntry] | None) -> None:
        live = sum(one.live for one in self._seats)
        for state, sources in zip(SOURCE_STATES, (live, len(self._seats) - live), strict=True):
            self._metrics.gateway_fleet_sources[state].set(sources)
        if entries is not None:
            self._version += 1
            seat.listed = SourceList(self._version, tuple(entries))
            self._listener(merge(one.listed for one in self._seats))


class Seat:
    """One source and its last list."""

    def __init__(self, source: Source, gather: Callable[["Seat", Sequence[PairEntry] | None], None]) -> None:
        """Starts with an empty list."""
        self.source = source
        self.listed = SourceList(0, ())
        self.live = False
        self._gather = gather

    def publish(self, entries: Sequence[PairEntry]) -> None:
        """The source works and has this list."""
        self.live = True
        self._gather(self, entries)

    def lost(self, error: Exception) -> None:
        """The source fails; its last list stays."""
        self.live = False
        self._gather(self, None)
