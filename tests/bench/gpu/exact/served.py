"""An embedded pair, placed by Ray, through a gateway: speculation on and off, alone and together, and after kills.

It imports Ray, which reads its environment then: a process that imports it runs one stage only.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy.demo import HYBRID
from deploy.stack import EMBEDDED
from paceline import AsyncClient
from tests.bench.gpu.exact.report import Row, exact_row
from tests.bench.gpu.exact.streams import Asked, Traffic, Writer
from tests.integration.deploy.ray_pairs import FOLDER, SERVICES, Cluster

TEMPERATURES = (0.0, 0.8)
KILL_AFTER_S = (0.3, 1.0)


@dataclass(frozen=True)
class Load:
    """How much is asked; `drafted` loads run with speculation on at the highest concurrency."""

    device: str
    dtype: str
    slots: int
    prompts: int
    tokens: int
    at_once: int
    drafted: int
    kills: int
    folder: Path = EMBEDDED


FULL = Load("cuda", "bfloat16", 64, prompts=128, tokens=128, at_once=64, drafted=3, kills=32)
TINY = Load("cpu", "float32", 4, prompts=6, tokens=24, at_once=4, drafted=1, kills=2)
LOADS = {
    (False, False): FULL,
    (True, False): TINY,
    (False, True): replace(FULL, prompts=64, at_once=32, kills=20, folder=HYBRID),
    (True, True): replace(TINY, folder=HYBRID),
}
"""By whether they are tiny, and of the hybrid pair."""


async def pair_rows(load: Load, mps: str) -> list[Row]:
    """One row for each temperature, speculation and concurrency, against texts written alone without speculation."""
    rows: list[Row] = []
    changes: dict[str, Any] = {"pairs": 1, "pairs_per_gpu": 1}
    async with _served(load, mps, changes) as (cluster, writer):
        for temperature in TEMPERATURES:
            asked = [Asked(number, temperature) for number in range(load.prompts)]
            alone = [answer.tokens for answer in await writer.all(asked, 1, speculation=False)]
            arms = [(False, load.at_once), (True, 1), *[(True, load.at_once)] * load.drafted]
            for speculation, at_once in arms:
                start = time.perf_counter()
                answers = await writer.all(asked, at_once, speculation)
                assert (sum(answer.accepted for answer in answers) > 0) == speculation
                differ = sum(one.tokens != tokens for one, tokens in zip(answers, alone, strict=True))
                what = f"T = {temperature}, speculation {'on' if speculation else 'off'}, {at_once} at once"
                tau = sum(len(one.tokens) for one in answers) / sum(one.rounds for one in answers)
                more = {"tau": round(tau, 2), "seconds": round(time.perf_counter() - start, 1)}
                rows.append(exact_row(what, len(answers), differ, sharing=cluster.pairs[0].gpu_sharing, **more))
    return rows


async def kill_rows(load: Load, mps: str) -> tuple[list[Row], bool]:
    """Texts while targets and drafters of two pairs are killed in turn, and whether none of them failed."""
    changes = {"restart_limit": 1000}
    async with _served(load, mps, changes) as (cluster, writer):
        asked = [Asked(number, TEMPERATURES[number % 2]) for number in range(load.prompts)]
        alone = await writer.all(asked, load.at_once, speculation=False)
        traffic = Traffic(writer, {each: answer.tokens for each, answer in zip(asked, alone, strict=True)})
        workers = [asyncio.create_task(traffic.run(number)) for number in range(load.at_once)]
        try:
            kills = await _kills(cluster, load.kills)
        finally:
            traffic.over = True
            await asyncio.gather(*workers)
        sharing, counts = cluster.pairs[0].gpu_sharing, traffic.counts
    more = {"kills": kills, "errors": counts["errors"], "migrated": counts["migrated"], "sharing": sharing}
    more |= {"other_numerics": counts["other_numerics"], "said": sorted(traffic.said)[:3]}
    row = exact_row("texts while targets and drafters are killed", counts["streams"], counts["differ"], **more)
    return [row], _passed(load, kills, counts)


def _passed(load: Load, kills: Mapping[str, int], counts: Mapping[str, int]) -> bool:
    """Every service was killed often enough and came back, streams moved, and none of them failed."""
    done = sum(kills.values()) >= load.kills and "never back" not in kills
    return done and counts["migrated"] > 0 and counts["errors"] == 0


async def _kills(cluster: Cluster, count: int) -> dict[str, int]:
    """Kills every service in turn, each at a random moment after all are back."""
    dice, kills = random.Random(22), Counter[str]()
    places = [(index, service) for index in range(len(cluster.pairs)) for service in SERVICES]
    for number in range(count):
        await asyncio.sleep(dice.uniform(*KILL_AFTER_S))
        index, service = places[number % len(places)]
        before = cluster.pairs[index]
        os.kill(getattr(before, f"{service}_pid"), signal.SIGKILL)
        kills[service] += 1
        try:
            await cluster.back(before, index, service)
            await cluster.until(lambda: all(pair.ready and pair.drafter_pid for pair in cluster.pairs))
        except TimeoutError:
            kills["never back"] += 1
            break
    return dict(kills)


@asynccontextmanager
async def _served(load: Load, mps: str, changes: dict[str, Any]) -> AsyncIterator[tuple[Cluster, Writer]]:
    run_dir = Path(FOLDER.name) / "c"
    run_dir.mkdir(mode=0o700)
    models = {"model": str(load.folder / "target"), "drafter": str(load.folder / "drafter")}
    if load.device == "cpu":
        # On a busy CPU measured costs may say that plain rounds are quicker: no draft would be checked then.
        changes = {**changes, "target_settings": {"adaptive": False}}
    cluster = Cluster(load.device, mps, run_dir, dtype=load.dtype, slots=load.slots, **models, **changes)
    try:
        await cluster.start()
        async with AsyncClient(await cluster.gateway_address()) as client:
            yield cluster, Writer(client, load.prompts, load.tokens)
    finally:
        await cluster.stop()
        FOLDER.cleanup()


def rows_of_pair(tiny: bool, hybrid: bool, mps: str) -> list[Row]:
    """`pair_rows` in this process."""
    return asyncio.run(pair_rows(LOADS[tiny, hybrid], mps))


def rows_of_kills(tiny: bool, hybrid: bool, mps: str) -> tuple[Sequence[Row], bool]:
    """`kill_rows` in this process."""
    return asyncio.run(kill_rows(LOADS[tiny, hybrid], mps))
