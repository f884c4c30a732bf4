"""The controller as a process: Ray runtime, pairs, FleetService."""

import asyncio
import signal
from pathlib import Path

from prometheus_client import CollectorRegistry

from deploy.cluster import mps, node, runtime
from deploy.cluster.controller import Controller
from deploy.cluster.fleet_service import FleetService
from deploy.cluster.registry import Registry
from deploy.cluster.settings import ClusterSettings
from services.common.pb.paceline.v1 import fleet_pb2_grpc
from services.common.serving import Bound, Listeners, Server
from services.common.tls import TlsFiles, server_credentials

FLEET = "paceline.v1.FleetService"


class ClusterApp:
    """Serves FleetService and keeps the pairs running."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self.run_dir = Path(settings.run_dir)
        self._registry = Registry()
        self._controller: Controller | None = None
        self._tasks: list[asyncio.Task[None]] = []
        tls = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        self._server = Server(
            name="cluster",
            listeners=Listeners(settings.listen, settings.health, settings.metrics),
            register=lambda server: fleet_pb2_grpc.add_FleetServiceServicer_to_server(
                FleetService(self._registry), server
            ),
            service_names=(FLEET,),
            metrics=CollectorRegistry(),
            credentials=server_credentials(tls) if tls else None,
        )

    @property
    def ready(self) -> bool:
        """Every pair serves."""
        return self._controller is not None and self._controller.ready

    async def start(self) -> Bound:
        """Starts Ray and the listeners; pairs come up in the background."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._start_ray)
        take_back_signals()
        self._controller = Controller(
            self._settings, runtime.resource_name(self._settings.placement), self.run_dir, self._registry
        )
        bound = await self._server.start()
        (self.run_dir / node.SERVING).touch()
        self._tasks = [asyncio.create_task(self._controller.run()), asyncio.create_task(self._follow_readiness())]
        return bound

    def _start_ray(self) -> None:
        if self._settings.mps:
            mps.start(self.run_dir)
        runtime.start(self.run_dir, self._settings.pairs, self._settings.ray_address)

    async def _follow_readiness(self) -> None:
        while True:
            await self._server.set_serving(self.ready)
            await asyncio.sleep(self._settings.poll_s)

    async def drain(self) -> None:
        """Lets targets finish, stops the pairs, Ray and the listeners, removes its folder."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.set_serving(False)
        if self._controller is not None:
            await self._controller.drain()
        await self._server.stop(1.0)
        await asyncio.get_running_loop().run_in_executor(None, runtime.stop)
        if self._settings.mps:
            await asyncio.to_thread(mps.stop)
        (self.run_dir / node.SERVING).unlink(missing_ok=True)


def take_back_signals() -> None:
    """Restores the handlers of the main thread: Ray puts in its own, which abort the process instead of draining it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.getsignal(number))
        signal.siginterrupt(number, False)
