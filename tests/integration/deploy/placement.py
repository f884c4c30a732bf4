"""Places pairs on fake GPUs with a real Ray.

A program of its own, because Ray reads its environment when it is imported.
"""

import asyncio
import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.cluster import environment

FOLDER = tempfile.TemporaryDirectory(prefix="pl-")
environment.prepare(Path(FOLDER.name))

import ray  # noqa: E402 - reads the environment when it is imported

from deploy.cluster import runtime  # noqa: E402
from deploy.cluster.actors import ServiceHost  # noqa: E402
from deploy.cluster.pair import ActorKinds, PairSpec, PlacedPair  # noqa: E402
from deploy.cluster.report import ActorReport  # noqa: E402
from services.common.serving.server import Bound  # noqa: E402
from services.drafter.settings import DrafterSettings  # noqa: E402
from services.target.settings import TargetSettings  # noqa: E402

GPUS = 3
WAIT_S = 240.0


@dataclass
class NoApp:
    """A service that does nothing."""

    ready: bool = True

    async def start(self) -> Bound:
        """Pretends to listen."""
        return Bound("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")

    async def drain(self) -> None:
        """Nothing to finish."""


class LightHost(ServiceHost):
    """An actor of the real kind around a service that does nothing."""

    async def __init__(self, settings: Any) -> None:  # type: ignore[misc]  # Ray awaits it
        await super().__init__("light", NoApp, "cpu")


LightActor = ray.remote(max_restarts=-1, max_concurrency=8)(LightHost)


def light_pair(index: int) -> PlacedPair:
    spec = PairSpec(f"pair-{index}", TargetSettings(model="m"), DrafterSettings(proposer="none"), "GPU", 0.7)
    return PlacedPair(spec, ActorKinds(LightActor, LightActor))


async def eventually(pair: PlacedPair, holds: Any) -> None:
    async def look() -> None:
        while True:
            await pair.refresh()
            if holds(pair.status):
                return
            await asyncio.sleep(0.05)

    await asyncio.wait_for(look(), WAIT_S)


async def reports(pair: PlacedPair) -> list[ActorReport]:
    return [await pair._target.report.remote(), await pair._drafter.report.remote()]


async def pairs_never_straddle_gpus_also_after_restarts() -> None:
    pairs = [light_pair(index) for index in range(GPUS)]
    for pair in pairs:
        await pair.place(WAIT_S)
    for pair in pairs:
        await eventually(pair, lambda s: s.ready and s.drafter_pid)
        target, drafter = await reports(pair)
        assert target.gpu_uuids == drafter.gpu_uuids
        assert len(target.gpu_uuids) == 1
    assert len({pair.status.gpu_uuids for pair in pairs}) == GPUS

    before = pairs[0].status
    os.kill(before.drafter_pid, signal.SIGKILL)
    await eventually(pairs[0], lambda s: s.drafter_restarts == 1)
    os.kill(before.target_pid, signal.SIGKILL)
    await eventually(pairs[0], lambda s: s.target_restarts == 1 and s.ready)
    target, drafter = await reports(pairs[0])
    assert target.gpu_uuids == drafter.gpu_uuids == before.gpu_uuids
    for pair in pairs:
        await pair.drain(WAIT_S)


async def a_pair_without_room_says_so() -> None:
    pairs = [light_pair(index) for index in range(GPUS)]
    for pair in pairs:
        await pair.place(WAIT_S)
    try:
        await light_pair(GPUS).place(1.0)
    except TimeoutError:
        pass
    else:
        raise AssertionError("a fourth pair found room on three GPUs")
    for pair in pairs:
        await pair.drain(WAIT_S)


async def main() -> None:
    """Runs both checks on one Ray."""
    runtime.start(Path(FOLDER.name), pairs=1, fake_gpus=GPUS)
    try:
        await pairs_never_straddle_gpus_also_after_restarts()
        await a_pair_without_room_says_so()
    finally:
        runtime.stop()
        FOLDER.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
    print("placement ok")
