"""The two actors of a pair: each hosts one service on its own asyncio loop."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import ray

from deploy.cluster import node
from services.common.mps import sharing
from services.common.serving import Bound
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings


@dataclass(frozen=True)
class ActorReport:
    """What an actor says of itself."""

    pid: int
    bound: Bound
    ready: bool
    gpu_uuids: tuple[str, ...]
    gpu_sharing: str


class App(Protocol):
    """A service that an actor can host."""

    @property
    def ready(self) -> bool:
        """The service can take work."""

    async def start(self) -> Bound:
        """Binds the listeners."""

    async def drain(self) -> None:
        """Finishes and ends."""


class ServiceHost:
    """Hosts one app; restarted by Ray, which runs __init__ again and nothing else."""

    async def __init__(self, app: App, device: str) -> None:  # type: ignore[misc]  # Ray awaits it
        """Starts the service here, because Ray repeats only the constructor after a crash."""
        self._app = app
        self._uuids = visible_gpus(device)
        self._sharing = sharing(device)
        self._bound = await app.start()

    async def report(self) -> ActorReport:
        """Addresses and readiness now."""
        return ActorReport(os.getpid(), self._bound, self._app.ready, self._uuids, self._sharing)

    async def drain(self) -> None:
        """Finishes running work and ends the service."""
        await self._app.drain()


class TargetHost(ServiceHost):
    """Hosts a target."""

    async def __init__(self, settings: TargetSettings) -> None:  # type: ignore[misc]  # Ray awaits it
        # Imported where it runs: the controller needs no torch.
        from services.target.app import TargetApp

        settings = node.localised(settings, *here())
        await super().__init__(TargetApp(settings), settings.device)
        self._leaving = asyncio.create_task(node.drain_when_asked(Path(settings.run_dir), self.drain))


class DrafterHost(ServiceHost):
    """Hosts a drafter."""

    async def __init__(self, settings: DrafterSettings) -> None:  # type: ignore[misc]  # Ray awaits it
        from services.drafter.app import DrafterApp

        settings = node.localised(settings, *here())
        await super().__init__(DrafterApp(settings), settings.device)


TargetActor = ray.remote(max_restarts=-1, max_concurrency=8)(TargetHost)
DrafterActor = ray.remote(max_restarts=-1, max_concurrency=8)(DrafterHost)


def here() -> tuple[str, list[int]]:
    """Address of this node, and the numbers of the GPUs that Ray gave to this actor."""
    return ray.util.get_node_ip_address(), [int(index) for index in ray.get_gpu_ids()]


def visible_gpus(device: str) -> tuple[str, ...]:
    """UUIDs of the GPUs that this process sees; on a CPU the ids that Ray assigned, which tests of placement read."""
    if device.startswith("cuda"):
        import torch

        return tuple(str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count()))
    return tuple(f"ray-gpu-{index}" for index in ray.get_gpu_ids())
