"""The controller as a process: Ray runtime, pairs, FleetService."""

import asyncio
import logging
import signal
from pathlib import Path

from prometheus_client import CollectorRegistry

from deploy.cluster import node, output, ray_watch, runtime
from deploy.cluster.controller import Controller, NoPairLeftError
from deploy.cluster.derived import pair_folder, pair_id
from deploy.cluster.fleet_service import FleetService
from deploy.cluster.meter import PairMeter
from deploy.cluster.mps import Mps, MpsError
from deploy.cluster.ray_watch import RayLostError
from deploy.cluster.registry import Registry
from deploy.cluster.settings import ClusterSettings
from services.common.metrics.catalogue import SERVICES, PairMetrics, ServiceMetrics
from services.common.metrics.loop_lag import observe_loop_lag
from services.common.pb.paceline.v1 import fleet_pb2_grpc
from services.common.serving.callers import Callers, entry
from services.common.serving.certificates import follow_certificates
from services.common.serving.front.front import Front
from services.common.serving.server import Bound, Listeners, Server
from services.common.serving.tls import TlsFiles, client_names

FLEET = "paceline.v1.FleetService"
logger = logging.getLogger(__name__)


class ClusterApp:
    """Serves FleetService and keeps the pairs running.

    ``fatal`` fails when no pair is left, when Ray or the MPS daemon has ended, or when the controller itself fails: the
    process must end then.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self.run_dir = Path(settings.run_dir)
        self._registry = Registry()
        self._controller: Controller | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lines: list[output.Lines] = []
        self._lost = False
        self.fatal: asyncio.Future[None] | None = None
        self._mps = Mps(settings.mps, self.run_dir)
        self._tls = tls = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        names = client_names(tls, settings.target_client_names)
        before = entry(settings.listen, tls, proof=bool(tls.ca))
        callers = Callers(names, front=before if isinstance(before, Front) and tls.ca else None)
        metrics = CollectorRegistry()
        ids = [pair_id(settings, index) for index in range(settings.pairs)]
        self._metrics = ServiceMetrics(metrics, settings.model_name)
        pairs = PairMetrics.each(metrics, settings.model_name, ids)
        self._meters = {name: PairMeter(its) for name, its in pairs.items()}
        self._server = Server(
            name="cluster",
            listeners=Listeners(settings.listen, settings.health, settings.metrics),
            register=lambda server: fleet_pb2_grpc.add_FleetServiceServicer_to_server(
                FleetService(self._registry, callers), server
            ),
            service_names=(FLEET,),
            metrics=metrics,
            entry=before,
        )

    @property
    def ready(self) -> bool:
        """Some pair serves."""
        return not self._lost and self._controller is not None and self._controller.ready

    async def start(self) -> Bound:
        """Starts Ray and the listeners; pairs come up in the background.

        Raises:
            MpsError, PacelineError, BindError: when that is refused; nothing is left running then.
        """
        try:
            return await self._begin()
        except Exception:
            await self.drain()
            raise

    async def _begin(self) -> Bound:
        loop = asyncio.get_running_loop()
        self.fatal = loop.create_future()
        resource = await loop.run_in_executor(None, self._start_ray)
        take_back_signals()
        self._controller = Controller(self._settings, resource, self.run_dir, self._registry, self._meters)
        if not self._settings.ray_address:
            self._lines = [self._hear(index, service) for index in range(self._settings.pairs) for service in SERVICES]
        bound = await self._server.start()
        (self.run_dir / node.SERVING).touch()
        work = (
            self._controller.run(),
            self._follow_readiness(),
            self._watch_ray(),
            self._watch_mps(),
            observe_loop_lag(self._metrics),
            follow_certificates(self._metrics, self._tls),
        )
        self._tasks = [asyncio.create_task(one) for one in work]
        self._tasks[0].add_done_callback(self._controller_ended)
        return bound

    def _hear(self, index: int, service: str) -> output.Lines:
        folder = pair_folder(self.run_dir, index)
        return output.Lines(folder, service, pair_id(self._settings, index), output.to_stdout)

    async def _watch_ray(self) -> None:
        name = await ray_watch.until_lost(bool(self._settings.ray_address))
        await self._lose(RayLostError(f"{name} of Ray has ended"))

    async def _watch_mps(self) -> None:
        await self._mps.until_lost()
        await self._lose(MpsError("the MPS daemon has ended"))

    async def _lose(self, error: Exception) -> None:
        """Ends the controller at once: its pairs cannot run without the lost process, and a new container starts all of
        them.
        """
        logger.critical("%s: the controller ends, and its pairs with it", error)
        self._lost = True
        await self._server.set_live(False)
        if self.fatal is not None and not self.fatal.done():
            self.fatal.set_exception(error)

    def _controller_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or self.fatal is None or self.fatal.done():
            return
        if not isinstance(error, ExceptionGroup) or error.split(NoPairLeftError)[1] is not None:
            logger.error("the controller failed", exc_info=error)
        self.fatal.set_exception(error)

    def _start_ray(self) -> str:
        """Starts Ray, and MPS where the pairs will share GPUs of this machine; returns what a pair takes one of."""
        if not self._settings.ray_address:
            self._mps.prepare()
        runtime.start(self.run_dir, self._settings.pairs, self._settings.ray_address)
        resource = runtime.resource_name(self._settings.placement)
        self._mps.start(on_gpus=resource == "GPU" and self._settings.device != "cpu")
        return resource

    async def _follow_readiness(self) -> None:
        while True:
            await self._server.set_serving(self.ready)
            await asyncio.sleep(self._settings.poll_s)

    async def drain(self) -> None:
        """Lets targets finish, stops the pairs, Ray and the listeners.

        When Ray or the daemon is lost it waits for nothing: the process ends together with all that it has started.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.set_serving(False)
        if self._controller is not None and not self._lost:
            await self._controller.drain()
        if not self._lost:
            await asyncio.to_thread(self._mps.stop)
        await self._server.stop(0.0 if self._lost else 1.0)
        if not self._lost:
            await asyncio.get_running_loop().run_in_executor(None, runtime.stop)
        for lines in self._lines:
            lines.close()
        (self.run_dir / node.SERVING).unlink(missing_ok=True)


def take_back_signals() -> None:
    """Restores the handlers of the main thread: Ray puts in its own, which abort the process instead of draining it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.getsignal(number))
        signal.siginterrupt(number, False)
