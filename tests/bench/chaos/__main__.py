"""Streams under faults of every kind: `python -m tests.bench.chaos --streams 3000 --seed 1`.

Three pods of the chart's workers, with Ray, and two gateways serve the embedded pair on a CPU. The last line is JSON;
it exits with 1 when a stream was lost to anything but its own killed gateway, a text differed or something was kept.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.bench.chaos.clients import Ask, Clients
from tests.bench.chaos.faults import Fault, catalogue, schedule
from tests.bench.chaos.place import Place
from tests.bench.chaos.waves import Waves
from tests.faults.shim import build
from tests.support.ports import free_ports

PODS, GATEWAYS = 3, 2
MOUNTS = "CHAOS_MOUNTS"


def unshared(module: str) -> None:
    """Goes on in a mount namespace of its own, in which disks are made; they go with the last process of it."""
    if MOUNTS not in os.environ:
        command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", module, *sys.argv[1:]]
        os.execvpe(command[0], command, {**os.environ, MOUNTS: "own"})


@asynccontextmanager
async def running_place(pods: int = PODS, gateways: int = GATEWAYS) -> AsyncIterator[Place]:
    """All of it, in a folder of its own, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pl-"))
    place = Place(folder, build(folder), free_ports(5 * pods + 4 * gateways), pods, gateways)
    try:
        await place.start()
        yield place
    finally:
        await place.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def chaos(chosen: argparse.Namespace) -> dict[str, object]:
    """Runs waves until there were so many streams, or the time is over."""
    rng, wave, seed, only = random.Random(chosen.seed), chosen.wave, chosen.seed, chosen.only
    async with running_place() as place:
        clients = Clients(place.gateways, [Ask(number, chosen.tokens) for number in range(wave)], f"chaos-{seed}")
        await clients.learn()
        await place.leaks()
        kinds = [fault for fault in catalogue(place) if not only or any(part in fault.kind for part in only)]
        waves = Waves(place, clients, rng)
        try:
            faults = schedule(kinds, -(-chosen.streams // wave), rng, 60 * chosen.minutes)
            await waves.run(_struck(place, fault, rng) for fault in faults)
        finally:
            keep(place, clients, waves, "chaos")
    return {"name": "chaos", "seed": seed, **waves.report()}


def _struck(place: Place, fault: Fault, rng: random.Random) -> tuple[str, Callable[[], Awaitable[None]]]:
    return fault.kind, partial(fault.strike, place, rng)


def keep(place: Place, clients: Clients, waves: Waves, name: str) -> None:
    """Tells what went wrong, and keeps all logs below build/ for whoever looks for the reason."""
    for line in (*clients.found.lost, *clients.found.differ, *waves.unhealed):
        print(line, file=sys.stderr)
    folder = Path("build") / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for log, text in place.logs().items():
        (folder / log).write_text(text)


def main() -> int:
    """Prints the report; 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.chaos")
    parser.add_argument("--streams", type=int, default=3000)
    parser.add_argument("--wave", type=int, default=24, help="streams of one wave")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--minutes", type=float, default=600.0, help="no wave begins later")
    parser.add_argument("--only", nargs="*", default=(), help="parts of the names of faults")
    chosen = parser.parse_args()
    unshared("tests.bench.chaos")
    print(f"chaos: seed {chosen.seed}", file=sys.stderr)
    report = asyncio.run(chaos(chosen))
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
