"""Metrics of state that changes outside rounds: captured steps, the attachment, evictions, snapshots, experts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from prometheus_client import Counter

from services.common.device.graph import CaptureCost, Counters
from services.common.metrics.catalogue import EXPERT_MEMORIES, TargetMetrics
from services.common.pair.handoff import HandoffMode
from services.target.cache.blocks import BlockPool
from services.target.cache.snapshots import SnapshotPool
from services.target.drafting.attachment import LATE, LOST

_POLL_S = 0.25


class Attaching(Protocol):
    """The part of the attacher that is read: attachments begun, ended by the watchdog, and ended otherwise."""

    attached: int
    quarantined: int
    lost: int


class Handing(Protocol):
    """The hand-off that is wanted and the one in use."""

    wanted: HandoffMode
    in_use: str


class Reading(Protocol):
    """Reads of a mixture's experts and their bytes, by the memory that they lay in, and how often two have moved."""

    visits: dict[str, int]
    read_bytes: dict[str, int]
    exchanges: int


class StateMeter:
    """Reads counters of other parts and publishes their growth; one thread calls ``publish``."""

    def __init__(
        self,
        metrics: TargetMetrics,
        graphs: Callable[[], Counters],
        cost: CaptureCost,
        pool: BlockPool,
        snapshots: SnapshotPool | None,
        attacher: Attaching | None,
        handoff: Handing,
        experts: Reading,
    ) -> None:
        """``snapshots`` is None for a model without recurrent states, ``attacher`` where no drafter is wanted."""
        self._metrics = metrics
        self._graphs = graphs
        self._pool, self._snapshots = pool, snapshots
        self._attacher, self._experts = attacher, experts
        self._seen: dict[Counter, int] = {}
        self._handoff, self._mode = handoff, handoff.in_use
        metrics.handoff_wanted[handoff.wanted].set(attacher is not None)
        metrics.graph_capture_seconds.set(cost.seconds)
        metrics.graph_held_bytes.set(cost.held_bytes)

    def publish(self) -> None:
        """Brings every metric up to date."""
        graphs, metrics = self._graphs(), self._metrics
        self._grow(graphs.captures, metrics.graph_captures)
        self._grow(graphs.replays, metrics.graph_replays)
        self._grow(graphs.recaptures, metrics.graph_recaptures)
        self._grow(graphs.reallocations, metrics.arena_reallocations)
        self._grow(self._pool.evictions, metrics.prefix_cache_evictions)
        if self._snapshots is not None:
            self._follow_snapshots(self._snapshots)
        for memory in EXPERT_MEMORIES:
            self._grow(self._experts.visits[memory], metrics.expert_reads[memory])
            self._grow(self._experts.read_bytes[memory], metrics.expert_read_bytes[memory])
        self._grow(self._experts.exchanges, metrics.expert_exchanges)
        metrics.handoff_mode[self._mode].set(0)
        self._mode = self._handoff.in_use
        metrics.handoff_mode[self._mode].set(1)
        if self._attacher is not None:
            self._grow(self._attacher.attached, metrics.drafter_attaches)
            self._grow(self._attacher.quarantined, metrics.drafter_quarantines[LATE])
            self._grow(self._attacher.lost, metrics.drafter_quarantines[LOST])

    async def follow(self) -> None:
        """Publishes again and again until cancelled."""
        while True:
            self.publish()
            await asyncio.sleep(_POLL_S)

    def _follow_snapshots(self, snapshots: SnapshotPool) -> None:
        self._metrics.state_snapshots.set(snapshots.held)
        self._metrics.state_snapshot_bytes.set(snapshots.held_bytes)
        self._grow(snapshots.hits, self._metrics.state_snapshot_hits)
        self._grow(snapshots.evictions, self._metrics.state_snapshot_evictions)

    def _grow(self, total: int, counter: Counter) -> None:
        counter.inc(total - self._seen.get(counter, 0))
        self._seen[counter] = total
