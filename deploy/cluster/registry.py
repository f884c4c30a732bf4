"""The list of pairs that FleetService announces; knows nothing of Ray or gRPC."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["starting", "ready", "draining", "down", "failed"]


@dataclass(frozen=True)
class PairEntry:
    """One pair as gateways see it."""

    pair_id: str
    target_address: str
    model: str
    state: State
    gpu_uuids: tuple[str, ...] = ()
    target_restarts: int = 0
    drafter_restarts: int = 0
    metrics_address: str = ""
    gpu_sharing: str = ""
    message: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The whole list at one version."""

    version: int
    pairs: tuple[PairEntry, ...]


class Registry:
    """Holds the current list and wakes the watchers when it changes."""

    def __init__(self) -> None:
        self._snapshot = Snapshot(0, ())
        self._changed = asyncio.Condition()

    @property
    def snapshot(self) -> Snapshot:
        """The current list."""
        return self._snapshot

    async def publish(self, pairs: Iterable[PairEntry]) -> None:
        """Replaces the list; an equal one changes nothing."""
        entries = tuple(pairs)
        if entries == self._snapshot.pairs:
            return
        async with self._changed:
            self._snapshot = Snapshot(self._snapshot.version + 1, entries)
            self._changed.notify_all()

    async def watch(self) -> AsyncIterator[Snapshot]:
        """Yields the list at once and again after every change; slow watchers skip versions."""
        seen = -1
        while True:
            async with self._changed:
                while self._snapshot.version == seen:
                    await self._changed.wait()
                current = self._snapshot
            seen = current.version
            yield current
