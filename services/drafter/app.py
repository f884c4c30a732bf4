"""The drafter as an object that a process or a Ray actor hosts."""

import asyncio
import contextlib
import logging
import tempfile
from functools import partial

import torch
from prometheus_client import CollectorRegistry

from services.common.device.device import end_if_lost, keep_no_stack
from services.common.device.threads import stay_on_core, use_threads
from services.common.metrics.catalogue import DrafterMetrics
from services.common.metrics.loop_lag import observe_loop_lag
from services.common.model import ModelError
from services.common.pair.attach import AttachOffer
from services.common.pb.paceline.v1.drafter_pb2_grpc import add_DrafterServiceServicer_to_server
from services.common.serving.callers import entry
from services.common.serving.server import Bound, Listeners, Server
from services.common.serving.tls import TlsFiles
from services.drafter.attachment import Attachment, open_attachment
from services.drafter.current_attachment import CurrentAttachment
from services.drafter.describe import DrafterIdentity
from services.drafter.proposers import Proposer
from services.drafter.proposers.build import build_proposer
from services.drafter.service import DrafterService, draft_count
from services.drafter.settings import DrafterSettings

logger = logging.getLogger(__name__)
_SERVICE_NAME = "paceline.v1.DrafterService"
_GRACE_S = 1.0
_DEVICE_WATCH_S = 0.25


class DrafterApp:
    """Binds its listeners at once and loads its checkpoint in a thread; it can be attached when that is done."""

    def __init__(self, settings: DrafterSettings) -> None:
        self._settings = settings
        self._device = torch.device(settings.device)
        registry = CollectorRegistry()
        self._metrics = DrafterMetrics(registry, settings.model_name, settings.pair_id)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._current = CurrentAttachment(self._open, settings.pace_timeout_s)
        self._service = DrafterService(self._current, DrafterIdentity(settings.device), self._metrics)
        tls = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        self._server = Server(
            "drafter",
            Listeners(settings.grpc or self._own_socket(), settings.health, settings.metrics),
            lambda server: add_DrafterServiceServicer_to_server(self._service, server),
            [_SERVICE_NAME],
            registry,
            entry(settings.grpc, tls, proof=False),
        )
        self._compiled: set[tuple[object, ...]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.fatal: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """The checkpoint is loaded; attached or not."""
        return self._service.proposer is not None

    async def start(self) -> Bound:
        """Binds the listeners and begins to load; `fatal` fails when the checkpoint cannot be used.

        Raises:
            BindError: an address cannot be bound.
        """
        stay_on_core(self._settings.core)
        if self._settings.threads:
            use_threads(self._settings.threads)
        self.fatal = asyncio.get_running_loop().create_future()
        bound = await self._server.start()
        self._tasks = [asyncio.create_task(self._load()), asyncio.create_task(observe_loop_lag(self._metrics))]
        if self._device.type == "cuda":
            self._tasks.append(asyncio.create_task(self._watch_device()))
        return bound

    async def drain(self) -> None:
        """NOT_SERVING, time for watchers to notice, then frees the attachment and ends the service."""
        await self._server.set_serving(False)
        await asyncio.sleep(self._settings.propagation_s)
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._current.free("the drafter is draining")
        await self._server.stop(_GRACE_S)
        if self._folder is not None:
            self._folder.cleanup()

    def _own_socket(self) -> str:
        """A Unix socket in a folder that only this user may enter."""
        self._folder = tempfile.TemporaryDirectory(prefix="paceline-")
        return f"unix:{self._folder.name}/drafter.sock"

    async def _load(self) -> None:
        try:
            await asyncio.to_thread(keep_no_stack, self._device)
            self._service.proposer = await asyncio.to_thread(build_proposer, self._settings)
        except (ModelError, OSError, RuntimeError) as error:
            logger.error("the drafter checkpoint cannot be used: %s", error)
            if self.fatal is not None:
                self.fatal.set_exception(error)
            return
        self._metrics.drafter_ready.set(1)
        await self._server.set_serving(True)

    async def _watch_device(self) -> None:
        """Looks for the loss of the GPU again and again.

        No call would find it: a target that waits for lost drafts asks for no others.
        """
        while True:
            await asyncio.sleep(_DEVICE_WATCH_S)
            await self._current.between_openings(partial(end_if_lost, self._device))

    def _open(self, offer: AttachOffer) -> Attachment:
        proposer: Proposer | None = self._service.proposer
        assert proposer is not None, "attached before the proposer was loaded"
        shapes = offer.slots, offer.buckets, offer.widths, offer.trees, offer.block_size
        threads, compiled = self._settings.compile_threads, shapes in self._compiled
        attachment = open_attachment(offer, proposer, self._device, threads, compiled)
        self._compiled.add(shapes)
        attachment.serve(draft_count(self._metrics), self._settings.core)
        return attachment
