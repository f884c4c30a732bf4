"""Metrics of what changes without a round: captured steps, the attachment, evictions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from services.common.device.graph import CaptureCost, Counters
from services.common.metrics.family import Family
from services.target.cache.blocks import BlockPool
from services.target.drafting.attachment import LATE, LOST

_POLL_S = 0.25


class Attaching(Protocol):
    """What is read of the attacher: attachments begun, ended by the watchdog, and ended otherwise."""

    attached: int
    quarantined: int
    lost: int


class Handing(Protocol):
    """The hand-off that is wanted and the one in use."""

    wanted: str
    mode: str


class StateMeter:
    """Reads counters that others keep and publishes their growth; ``publish`` belongs to one thread."""

    def __init__(
        self,
        metrics: Family,
        graphs: Callable[[], Counters],
        cost: CaptureCost,
        pool: BlockPool,
        attacher: Attaching | None,
        handoff: Handing,
    ) -> None:
        """``attacher`` is None where no drafter is wanted."""
        self._metrics = metrics
        self._graphs = graphs
        self._pool = pool
        self._attacher = attacher
        self._seen: dict[tuple[str, ...], int] = {}
        self._handoff, self._mode = handoff, handoff.mode
        metrics["handoff_wanted"].set(1, handoff.wanted)
        metrics["graph_capture_seconds"].set(cost.seconds)
        metrics["graph_held_bytes"].set(cost.held_bytes)

    def publish(self) -> None:
        """Brings every metric up to date."""
        graphs = self._graphs()
        self._grow(graphs.captures, "graph_captures")
        self._grow(graphs.replays, "graph_replays")
        self._grow(graphs.recaptures, "graph_recaptures")
        self._grow(graphs.reallocations, "arena_reallocations")
        self._grow(self._pool.evictions, "prefix_cache_evictions")
        self._metrics["handoff_mode"].set(0, self._mode)
        self._mode = self._handoff.mode
        self._metrics["handoff_mode"].set(1, self._mode)
        if self._attacher is not None:
            self._grow(self._attacher.attached, "drafter_attaches")
            self._grow(self._attacher.quarantined, "drafter_quarantines", LATE)
            self._grow(self._attacher.lost, "drafter_quarantines", LOST)

    async def follow(self) -> None:
        """Publishes again and again until cancelled."""
        while True:
            self.publish()
            await asyncio.sleep(_POLL_S)

    def _grow(self, total: int, name: str, *labels: str) -> None:
        key = (name, *labels)
        self._metrics[name].inc(*labels, by=total - self._seen.get(key, 0))
        self._seen[key] = total
