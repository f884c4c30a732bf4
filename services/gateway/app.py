"""The gateway as one object: what `python -m services.gateway` and other hosts run."""

import asyncio
import os
import random
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import GatewayMetrics
from services.common.metrics.loop_lag import observe_loop_lag
from services.common.metrics.named import NamedRegistry
from services.common.pb.paceline.v1 import inference_pb2
from services.common.serving import measures, tracing
from services.common.serving.certificates import follow_certificates
from services.common.serving.channel import EDGE_OPTIONS
from services.common.serving.front.front import Front
from services.common.serving.hub import FolderError
from services.common.serving.memory import give_back_freed_memory
from services.common.serving.rotating_tls import RotatingContext
from services.common.serving.secret import Secret
from services.common.serving.server import BindError, Bound, Listeners, Server
from services.common.serving.tls import Peers, TlsFiles
from services.gateway.fleet.directory import Directory
from services.gateway.fleet.sources import DnsSource, Source, StaticSource, WatchSource
from services.gateway.fleet.watch_dns import WatchDnsSource
from services.gateway.grpc.call_interceptor import CallInterceptor
from services.gateway.grpc.methods import add_service
from services.gateway.grpc.service import InferenceService
from services.gateway.http.edge import HttpEdge
from services.gateway.http.endpoints.picker import PickerPage
from services.gateway.http.endpoints.probes import probes
from services.gateway.http.routes import Handler
from services.gateway.intake.inlet import Gates, InletInterceptor
from services.gateway.prompts.tokenizer import TokenizerError
from services.gateway.routing.router import Router
from services.gateway.settings import GatewaySettings
from services.gateway.streams.calls import Calls, TenantLabels
from services.gateway.streams.catalogue import load_catalogue
from services.gateway.streams.entrance import Entrance
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.streams.streams import Streams
from services.gateway.targets.allowance import Allowance
from services.gateway.targets.link import Dial
from services.gateway.targets.pool import Pool
from services.gateway.targets.status import StatusBoard
from services.gateway.tenancy import admission
from services.gateway.tenancy.auth import AuthInterceptor
from services.gateway.tenancy.tenants import TenantsError, TenantsFile
from services.gateway.vllm import vllm_service
from services.gateway.vllm.service import VllmEngine


@dataclass(frozen=True)
class GatewayBound(Bound):
    """Addresses as bound; empty ones are off."""

    http: str = ""


MOST_TENANTS = 100
"""That have series of their own where the settings name none."""

SEVERAL = "several"
"""The name in metrics, where there are several models, of what belongs to none of them."""

SERVICE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]

UNUSABLE = (FolderError, TokenizerError, TenantsError, OSError)
"""What a folder or file of the settings makes GatewayApp raise."""


class GatewayApp:
    """Runs on the caller's event loop and installs no signal handlers.

    Raises:
        FolderError, TokenizerError, TenantsError, OSError: a folder or file of the settings cannot be used.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        """Reads the files; nothing runs before `start`."""
        self._settings = settings
        names = tuple(one.name for one in settings.served if one.name)
        several = names if len(names) > 1 else ()
        registry = CollectorRegistry() if several else NamedRegistry(lambda: "".join(names) or self._pool.served)
        self.metrics = GatewayMetrics(registry, SEVERAL if several else "", several)
        tls = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        outgoing = TlsFiles(settings.target_tls_cert, settings.target_tls_key, settings.target_tls_ca)
        self._peers = Peers(outgoing, settings.target_tls_name)
        self._tls = tls
        self._secret = Secret(settings.target_secret, settings.target_secret_file)
        gateway_id = f"{socket.gethostname()}-{os.getpid()}"
        self._pool = Pool(
            Dial(gateway_id, names, self._peers, self._secret, settings.max_request_s),
            Router(random.Random(), settings.revision_weights, settings.own_pairs),
            self.metrics,
        )
        catalogue = load_catalogue(settings.served, settings.model)
        self._front = RequestFactory(settings, catalogue, self._pool, self.metrics)
        self._tenants = TenantsFile(Path(settings.tenants)) if settings.tenants else None
        self._gates = Gates()
        self._inlet = InletInterceptor(self._gates)
        self._tracer, self._measures = tracing.tracer("gateway"), measures.measures("gateway")
        self._calls = self._recorder()
        keys = [AuthInterceptor(self._tenants.find)] if self._tenants else []
        self._server = Server(
            "gateway",
            Listeners(settings.grpc, settings.health, settings.metrics),
            self._register,
            (SERVICE.full_name,),
            registry,
            Front(
                self._tenant if self._tenants else None,
                RotatingContext.of(tls, "h2") if tls else None,
                dropped=self._calls.dropped,
            ),
            [CallInterceptor(self._calls), *keys, self._inlet],
            EDGE_OPTIONS,
        )
        bound = admission.Bound(settings.max_requests, settings.max_queued_tokens)
        admitting = admission.Admission(bound, time.monotonic)
        self._allowance = Allowance(self._pool)
        entrance = Entrance(admitting, self.metrics, self._allowance)
        self._streams = Streams(self._front, entrance, settings, self.metrics, self._calls)
        self._board = StatusBoard(lambda: self._pool.links, time.monotonic)
        self._http = self._http_edge() if settings.http else None
        self._tasks: list[asyncio.Task[None]] = []
        self._draining = False

    @property
    def ready(self) -> bool:
        """A target takes work and the gateway does not drain."""
        return self._pool.ready and not self._draining

    async def start(self) -> GatewayBound:
        """Binds the listeners and begins to look for targets; health follows `ready`.

        Raises:
            BindError: an address cannot be bound; the others are free again.
        """
        try:
            bound = GatewayBound(**(await self._server.start()).as_dict())
            if self._http:
                bound = replace(bound, http=await self._http.start())
        except BindError:
            await self._server.stop(0)
            raise
        directory = Directory(self._sources(), self._pool.listen, self.metrics)
        work = (
            directory.run(),
            self._follow_readiness(),
            observe_loop_lag(self.metrics),
            follow_certificates(self.metrics, self._tls),
            give_back_freed_memory(),
            self._secret.follow(),
            self._allowance.follow(),
        )
        self._tasks = [asyncio.create_task(one) for one in work]
        if self._tenants:
            self._tasks.append(asyncio.create_task(self._tenants.follow()))
        return bound

    async def drain(self) -> None:
        """NOT_SERVING, waits until callers know, lets running streams finish within the grace, ends everything."""
        self._draining = True
        await self._server.set_serving(False)
        await asyncio.sleep(self._settings.propagation_s)
        grace_s = self._settings.drain_grace_s
        await asyncio.gather(self._server.stop(grace_s), *([self._http.stop(grace_s)] if self._http else []))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()
        self._front.close()
        self._inlet.close()
        await asyncio.gather(*(asyncio.to_thread(each.close) for each in (self._tracer, self._measures)))

    def _tenant(self, key: str) -> str | None:
        """Name of the tenant that has this key."""
        tenant = self._tenants.find(key) if self._tenants else None
        return tenant.name if tenant else None

    def _register(self, server: grpc.aio.Server) -> None:
        settings, streams = self._settings, self._streams
        service = InferenceService(self._front, streams, self._board, settings.default_max_tokens)
        add_service(server, SERVICE, service)
        if settings.vllm_engine:
            add_service(server, vllm_service(), VllmEngine(self._front, streams, self._pool, settings))

    def _recorder(self) -> Calls:
        settings, tenants = self._settings, self._tenants
        labels = TenantLabels(settings.metrics_tenants, (lambda: tenants.names) if tenants else None, MOST_TENANTS)
        lines, refused = settings.access_log, settings.access_log_refused
        return Calls(self.metrics, self._tracer, labels, lambda: self._front.served, lines, refused, self._measures)

    def _http_edge(self) -> HttpEdge:
        return HttpEdge(
            self._settings,
            self._front,
            self._streams,
            self._board,
            self._gates,
            self._tenants,
            self._tls,
            self._probes(),
        )

    def _probes(self) -> Mapping[str, Handler]:
        own, found = self._settings.own_pairs, probes(lambda: self.ready)
        page = PickerPage(lambda: self._pool.links, own, lambda: self._pool.served)
        return {**found, "/metrics": page} if own else found

    def _sources(self) -> list[Source]:
        settings = self._settings
        sources: list[Source] = [self._watch(address) for address in settings.watch]
        sources += [WatchDnsSource(name, settings.dns_interval_s, self._watch) for name in settings.watch_dns]
        if settings.dns:
            sources.append(DnsSource(settings.dns, settings.dns_interval_s))
        if settings.targets:
            sources.append(StaticSource(settings.targets))
        return sources

    def _watch(self, address: str) -> Source:
        return WatchSource(address, self._peers)

    async def _follow_readiness(self) -> None:
        while not self._draining:
            change = self._pool.change()
            await self._server.set_serving(self.ready)
            await change.wait()
