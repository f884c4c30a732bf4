"""Mixed load for long, with faults that leave most processes alive: `python -m tests.bench.soak --minutes 60`.

The pods and gateways of `make chaos` serve waves of streams over gRPC and HTTP, some of them given up by their clients.
After each wave, at rest, every process is measured: memory of its own, threads, descriptors; and every page of metrics
for its series. The last line is JSON; it exits with 1 when a stream was lost or differed, something was kept, or a
slope after the warm-up is not level.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from tests.bench.chaos.__main__ import keep, running_place, unshared
from tests.bench.chaos.clients import Ask, Clients, StreamError
from tests.bench.chaos.faults import Fault, catalogue
from tests.bench.chaos.levels import Levels
from tests.bench.chaos.place import Place, workers_logs
from tests.bench.chaos.waves import Waves
from tests.faults.rest import footprint

PODS, GATEWAYS = 2, 2
GENTLE = ("kill chat child", "kill ray::DrafterHos", "no descriptors for gateway", "full disk", "clock")
GIVEN_UP, CLIENTS_GO = 6, 0.6
"""Streams that clients give up in a wave, and the share of waves in which nothing else happens."""


class Soak:
    """What happens in the waves, and what is measured between them."""

    def __init__(self, place: Place, clients: Clients, rng: random.Random, warm_minutes: float) -> None:
        self._place, self._clients, self._rng = place, clients, rng
        self._began_s, self._warm_s = time.monotonic(), 60 * warm_minutes
        self.levels = Levels()

    def faults(self, minutes: float) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Mostly clients that go, else a gentle fault, until the time behind the warm-up is over."""
        gentle = [fault for fault in catalogue(self._place) if fault.kind in GENTLE]
        go = Fault("clients go", self._clients_go)
        while self._passed_s() < self._warm_s + 60 * minutes:
            fault = go if self._rng.random() < CLIENTS_GO else self._rng.choice(gentle)
            yield fault.kind, partial(fault.strike, self._place, self._rng)

    async def measure(self) -> None:
        """Adds what everything holds, once it is warm."""
        if self._passed_s() >= self._warm_s:
            self.levels.add(self._passed_s(), await asyncio.to_thread(measured, self._place))

    def _passed_s(self) -> float:
        return time.monotonic() - self._began_s

    async def _clients_go(self, place: Place, rng: random.Random) -> None:
        """Some clients end their streams at any time."""
        asks = rng.sample(self._clients.asks, min(GIVEN_UP, len(self._clients.asks)))
        await asyncio.gather(*(self._given_up(place, ask, rng) for ask in asks))

    async def _given_up(self, place: Place, ask: Ask, rng: random.Random) -> None:
        with contextlib.suppress(TimeoutError, StreamError):
            async with asyncio.timeout(rng.uniform(0.0, 3.0)):
                await rng.choice(place.gateways).read(ask, "", _nothing)


def measured(place: Place) -> dict[tuple[str, str], float]:
    """What every process holds, by its name and id, and how many series every page has."""
    found: dict[tuple[str, str], float] = {}
    for pid, name in place.processes().items():
        with contextlib.suppress(OSError):
            holds, who = footprint(pid), f"{name} {pid}"
            threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
            found |= {("memory_kib", who): holds.resident_kib, ("threads", who): threads}
            found["descriptors", who] = holds.descriptors - workers_logs(pid)
    for pod in place.pods:
        found["series", f"{pod.name} target"] = series(pod.pair.metrics_address)
    for gateway in place.gateways:
        found["series", gateway.name] = series(gateway.metrics)
    return found


def series(address: str) -> int:
    """Series of a page of metrics."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        return sum(not line.startswith(b"#") for line in page.read().splitlines())


def _nothing() -> None:
    """The client waits for nothing."""


async def soak(minutes: float, warm_minutes: float, wave: int, tokens: int, seed: int) -> dict[str, object]:
    """Runs waves until the time is over."""
    rng = random.Random(seed)
    async with running_place(PODS, GATEWAYS) as place:
        clients = Clients(place.gateways, [Ask(number, tokens) for number in range(wave)], f"soak-{seed}")
        await clients.learn()
        await place.leaks()
        made = Soak(place, clients, rng, warm_minutes)
        waves = Waves(place, clients, rng, at_rest=made.measure)
        try:
            await waves.run(made.faults(minutes))
        finally:
            keep(place, clients, waves, "soak")
        levels, report = made.levels.report(), waves.report()
    report["ok"] = bool(report["ok"] and levels["level"])
    return {"name": "soak", "seed": seed, "minutes": minutes, **levels, **report}


def main() -> int:
    """Prints the report; 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-minutes", type=float, default=10.0)
    parser.add_argument("--wave", type=int, default=18, help="streams of one wave")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    unshared("tests.bench.soak")
    report = asyncio.run(soak(chosen.minutes, chosen.warm_minutes, chosen.wave, chosen.tokens, chosen.seed))
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
