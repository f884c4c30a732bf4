"""Waves of streams, each with a fault; after each all is at rest and nothing may be held."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from tests.bench.chaos.clients import Clients, Reading

SPREAD_S = 3.0


class Site(Protocol):
    """What is struck; `kept` says who held more descriptors than before when it was last looked at."""

    kept: list[str]

    async def healed(self) -> None:
        """Waits until all of it serves."""
        ...

    async def leaks(self) -> dict[str, int]:
        """What is held at rest, by what it is."""
        ...


class Waves:
    """Half of a wave's streams have begun when its fault comes, the others begin under it."""

    def __init__(
        self,
        site: Site,
        clients: Clients,
        rng: random.Random,
        spread_s: float = SPREAD_S,
        at_rest: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`at_rest` is called after every wave; streams that begin under a fault begin within `spread_s` or so."""
        self._site, self._clients, self._rng, self._spread_s = site, clients, rng, spread_s
        self._at_rest = at_rest
        self.faults: Counter[str] = Counter()
        self.leaked: Counter[str] = Counter()
        self.unhealed: list[str] = []
        self._began = time.monotonic()

    async def run(self, faults: Iterable[tuple[str, Callable[[], Awaitable[None]]]]) -> None:
        """One wave for each fault, which is its kind and what does it."""
        for number, (kind, strike) in enumerate(faults):
            await self._wave(number, kind, strike)
            self.faults[kind] += 1

    async def _wave(self, number: int, kind: str, strike: Callable[[], Awaitable[None]]) -> None:
        asks = self._rng.sample(self._clients.asks, len(self._clients.asks))
        self._clients.during = kind
        half = len(asks) // 2
        before = [self._clients.begin(ask, number) for ask in asks[:half]]
        await asyncio.gather(*(reading.begun.wait() for reading in before))
        struck = asyncio.create_task(self._struck(kind, strike))
        after: list[Reading] = []
        for ask in asks[half:]:
            await asyncio.sleep(self._rng.uniform(0.0, 2 * self._spread_s / len(asks)))
            after.append(self._clients.begin(ask, number))
        await asyncio.gather(*(reading.task for reading in (*before, *after) if reading.task is not None), struck)
        await self._rest(number, kind)

    async def _struck(self, kind: str, strike: Callable[[], Awaitable[None]]) -> None:
        try:
            await strike()
        except TimeoutError:
            self.unhealed.append(f"{kind}: was not over in time")

    async def _rest(self, number: int, kind: str) -> None:
        try:
            await self._site.healed()
        except TimeoutError as error:
            self.unhealed.append(f"wave {number}, {kind}: {error}")
            raise
        leaks = await self._site.leaks()
        self.leaked.update(leaks)
        if self._at_rest is not None:
            await self._at_rest()
        found, passed_s = self._clients.found, time.monotonic() - self._began
        told = f"{passed_s:6.0f} s  wave {number}  {kind}: {found.streams} streams, {len(found.lost)} lost, "
        told += f"{len(found.differ)} differ, {found.by_gateway} by their gateway, held {leaks} {self._site.kept}"
        print(told, file=sys.stderr, flush=True)

    def report(self) -> dict[str, object]:
        """What happened."""
        found = self._clients.found
        leaked = {name: self.leaked[name] for name in ("slots", "blocks", "descriptors")}
        others = sum(self.leaked.values()) - sum(leaked.values())
        return {
            "streams": found.streams,
            "lost": len(found.lost),
            "differ": len(found.differ),
            "by_gateway": found.by_gateway,
            "kinds": dict(found.kinds),
            "faults": dict(sorted(self.faults.items())),
            "leaked": leaked,
            "unhealed": self.unhealed,
            "seconds": round(time.monotonic() - self._began),
            "ok": not (found.lost or found.differ or self.unhealed or others or any(leaked.values())),
        }
