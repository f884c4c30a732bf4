"""The two actors of a pair: each hosts one service on its own asyncio loop."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import ray

from deploy.cluster import node, output
from deploy.cluster.failure import Failure, failure_of
from deploy.cluster.report import ActorReport
from services.common.pair.mps import sharing
from services.common.serving.server import Bound
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

logger = logging.getLogger(__name__)
# How long a process that failed lives on, so that the controller hears why.
TELL_S = 2.0


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
    """Hosts one app; restarted by Ray, which runs __init__ again and nothing else.

    When a service fails for a reason that may pass, this process ends and Ray starts it again. A final refusal is
    reported instead, because a restart would only repeat it; so is an error of the constructor, after which Ray would
    not restart the actor.
    """

    async def __init__(self, name: str, make: Callable[[], App], device: str) -> None:  # type: ignore[misc]  # Ray awaits it
        """Starts the service here, because Ray repeats only the constructor after a crash."""
        self._name = name
        self._app: App | None = None
        self._failure: Failure | None = None
        self._uuids: tuple[str, ...] = ()
        self._sharing, self._bound = "", Bound("", "", "")
        try:
            self._uuids, self._sharing = visible_gpus(device), sharing(device)
            app = make()
            self._bound = await app.start()
        except Exception as error:
            logger.exception("the service cannot start")
            self._fail(error, served=False)
            return
        self._app = app
        self._watching = asyncio.create_task(self._watch(app))

    async def _watch(self, app: App) -> None:
        """Waits for what the service itself calls fatal."""
        fatal: asyncio.Future[None] | None = getattr(app, "fatal", None)
        if fatal is None:
            return
        await asyncio.wait([fatal])
        error = fatal.exception()
        assert error is not None, "fatal never succeeds"
        self._fail(error, served=app.ready)

    def _fail(self, error: BaseException, served: bool) -> None:
        self._failure = failure_of(self._name, error, served)
        if not self._failure.final:
            asyncio.get_running_loop().call_later(TELL_S, os._exit, 1)

    async def report(self) -> ActorReport:
        """Addresses and readiness now, or why there is none."""
        ready = self._app is not None and self._failure is None and self._app.ready
        still_s: float = getattr(self._app, "still_s", 0.0)
        return ActorReport(os.getpid(), self._bound, ready, self._uuids, self._sharing, self._failure, still_s)

    async def drain(self) -> None:
        """Finishes running work and ends the service."""
        if self._app is not None:
            await self._app.drain()


class TargetHost(ServiceHost):
    """Hosts a target."""

    async def __init__(self, settings: TargetSettings) -> None:  # type: ignore[misc]  # Ray awaits it
        settings = node.localised(settings, *here())
        output.speak(Path(settings.run_dir), "target", settings.log_level, settings.pair_id)
        await super().__init__("target", partial(_target, settings), settings.device)
        self._leaving = asyncio.create_task(node.drain_when_asked(Path(settings.run_dir), self.drain))


class DrafterHost(ServiceHost):
    """Hosts a drafter."""

    async def __init__(self, settings: DrafterSettings) -> None:  # type: ignore[misc]  # Ray awaits it
        settings = node.localised(settings, *here())
        folder = Path(settings.grpc.removeprefix("unix:")).parent
        output.speak(folder, "drafter", settings.log_level, settings.pair_id)
        await super().__init__("drafter", partial(_drafter, settings), settings.device)


# Imported where they run: the controller needs no torch.
def _target(settings: TargetSettings) -> App:
    from services.target.app import TargetApp

    return TargetApp(settings)


def _drafter(settings: DrafterSettings) -> App:
    from services.drafter.app import DrafterApp

    return DrafterApp(settings)


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
