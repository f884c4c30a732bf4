"""The target as an object that a process or an actor hosts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import TargetMetrics
from services.common.metrics.loop_lag import observe_loop_lag
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.serving.callers import Callers, entry
from services.common.serving.certificates import follow_certificates
from services.common.serving.front.front import Front
from services.common.serving.secret import Secret
from services.common.serving.server import Bound, Listeners, Server
from services.common.serving.tls import TlsFiles, client_names
from services.target.build_device import Worker, build_worker
from services.target.build_services import Services, build_services, rehearsal
from services.target.drain import drain
from services.target.engine.watch import keep_health
from services.target.sessions.service import TargetService
from services.target.sessions.sessions import post
from services.target.settings import TargetSettings

_LOG = logging.getLogger(__name__)
_SERVICE = "paceline.v1.TargetService"
_STOP_GRACE_S = 2.0


class TargetApp:
    """Binds its listeners at once and loads in a thread. It is ready when the drafter is attached or not required.

    ``fatal`` fails when the target can never serve, or can serve no longer; the process must then end.
    """

    def __init__(self, settings: TargetSettings) -> None:
        """Binds nothing yet."""
        self._settings = settings
        registry = CollectorRegistry()
        self._metrics = TargetMetrics(registry, settings.model_name, settings.pair_id)
        self._tls = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        names = client_names(self._tls, settings.target_client_names)
        before = entry(settings.grpc, self._tls, proof=True)
        self._secret = Secret(settings.session_secret, settings.session_secret_file)
        callers = Callers(names, self._secret, before if isinstance(before, Front) else None)
        self._service = TargetService(callers)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        address = settings.grpc or f"unix:{self._side_folder() / 'target.sock'}"
        listeners = Listeners(address, settings.health, settings.metrics)
        self._server = Server("target", listeners, self._register, [_SERVICE], registry, before)
        self._services: Services | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._draining = self._dead = False
        self.fatal: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether every step is captured, and the drafter has been attached or is not required."""
        services = self._services
        if services is None or self._draining:
            return False
        return services.attacher is None or not self._settings.require_drafter or services.attacher.first.is_set()

    @property
    def still_s(self) -> float:
        """Seconds for which the engine has finished no turn, or no round while it has work."""
        return self._services.watch.still_s if self._services is not None else 0.0

    async def start(self) -> Bound:
        """Binds the listeners and begins to load.

        Raises:
            BindError: An address cannot be bound.
        """
        self.fatal = asyncio.get_running_loop().create_future()
        bound = await self._server.start()
        self._go(self._load())
        self._go(observe_loop_lag(self._metrics))
        self._go(follow_certificates(self._metrics, self._tls))
        self._go(self._secret.follow())
        return bound

    async def wait_ready(self, timeout_s: float) -> None:
        """Waits until ready.

        Raises:
            TimeoutError: It took longer.
        """
        async with asyncio.timeout(timeout_s):
            while not self.ready:
                await asyncio.sleep(0.02)

    async def drain(self) -> None:
        """Finishes or moves the running requests, then ends everything; may be called after a failure."""
        self._draining = True
        services = self._services
        if services is not None and not self._dead:
            settings, serving = self._settings, self._server.set_serving
            await drain(serving, services.thread, services.sessions, settings.propagation_s, settings.drain_grace_s)
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._server.stop(_STOP_GRACE_S)
        if services is not None:
            await asyncio.to_thread(services.close)
        if self._folder is not None:
            self._folder.cleanup()

    def _register(self, server: Any) -> None:
        rpc.add_TargetServiceServicer_to_server(self._service, server)

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _load(self) -> None:
        """Loads, captures the steps and starts the engine; every error is fatal."""
        loop = asyncio.get_running_loop()
        try:
            worker = await asyncio.to_thread(build_worker, self._settings, os.getpid(), rehearsal)
            self._services = self._build(worker, loop)
        except Exception as error:
            _LOG.error("the target cannot start: %s", error)
            self._fail(error)
            return
        self._metrics.numerics[worker.numerics.digest].set(1)
        self._metrics.kv_dtype[worker.numerics.kv_dtype or worker.numerics.dtype].set(1)
        for state, count in worker.exactness.counts.items():
            self._metrics.exact_shapes[state].set(count)
        self._service.open(self._services.service)
        self._services.start()
        self._go(self._services.state.follow())
        watch = self._services.watch
        self._go(keep_health(watch, lambda: self.ready, self._server.set_serving, self._server.set_live, self._metrics))

    def _build(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> Services:
        def on_loop(call: Callable[..., None]) -> Callable[..., None]:
            return partial(post, loop, call)

        return build_services(self._settings, worker, self._metrics, self._side_folder(), on_loop, on_loop(self._fail))

    def _side_folder(self) -> Path:
        """A folder for sockets that only this user may enter."""
        if self._settings.run_dir:
            return Path(self._settings.run_dir) / f"side-{self._settings.pair_id}"
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="paceline-")
        return Path(self._folder.name)

    def _fail(self, error: BaseException) -> None:
        self._dead = True
        if self._services is not None:
            self._services.sessions.close_all()
        if self.fatal is not None and not self.fatal.done():
            self.fatal.set_exception(error)
