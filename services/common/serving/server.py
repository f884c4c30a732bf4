"""The three listeners of a service: gRPC, plaintext health, metrics."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from services.common.metrics.exporter import Exporter
from services.common.serving.addresses import own_names
from services.common.serving.channel import PROBE_OPTIONS, SERVER_OPTIONS
from services.common.serving.front.front import Front
from services.common.serving.interceptors import ErrorInterceptor

HEALTH = "grpc.health.v1.Health"
LIVENESS = "liveness"
PROBES = 64
"""Connections to the port of health, half of them from one address."""


@dataclass(frozen=True)
class Listeners:
    """Addresses to bind: host:port (port 0 lets the system choose) or, for grpc, unix:/path or nothing.

    A Unix socket is for this user alone; its folder is made with mode 0700 when absent.
    """

    grpc: str = "127.0.0.1:0"
    health: str = "127.0.0.1:0"
    metrics: str = "127.0.0.1:0"


@dataclass(frozen=True)
class Bound:
    """Addresses as bound."""

    grpc: str
    health: str
    metrics: str

    def as_dict(self) -> dict[str, str]:
        """The addresses by listener."""
        return asdict(self)


class BindError(RuntimeError):
    """An address could not be bound."""


class Server:
    """Serves one service on three listeners; health is NOT_SERVING until set_serving(True).

    `entry` is what the one for gRPC has: credentials, or a front that strangers may reach. That for health has a front.
    """

    def __init__(
        self,
        name: str,
        listeners: Listeners,
        register: Callable[[grpc.aio.Server], None],
        service_names: Sequence[str],
        metrics: CollectorRegistry,
        entry: grpc.ServerCredentials | Front | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        options: Sequence[tuple[str, int]] = SERVER_OPTIONS,
    ) -> None:
        self.name = name
        self._listeners = listeners
        self._register = register
        self._names = tuple(service_names)
        self._registry = metrics
        self._front = entry if isinstance(entry, Front) else None
        self._credentials = None if isinstance(entry, Front) else entry
        self._interceptors = [ErrorInterceptor(), *interceptors]
        self._options = list(options)
        self._health_front = Front(most=PROBES, probes=True)
        self._health = HealthServicer()
        self._main: grpc.aio.Server | None = None
        self._plain: grpc.aio.Server | None = None
        self._metrics: Exporter | None = None

    async def start(self) -> Bound:
        """Binds all listeners.

        Raises:
            BindError: when an address cannot be bound.
        """
        self._main = self._made() if self._listeners.grpc else None
        self._plain = grpc.aio.server(options=list(PROBE_OPTIONS))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._plain)
        bound_grpc = self._bind_main(self._main) if self._main else ""
        _bind(self._plain, self._health_front.inner, None)
        bound_health = _listen(self._health_front, self._listeners.health)
        await self.set_serving(False)
        await self.set_live(True)
        if self._main is not None:
            await self._main.start()
        await self._plain.start()
        return Bound(bound_grpc, bound_health, self._start_metrics())

    def _made(self) -> grpc.aio.Server:
        server = grpc.aio.server(interceptors=self._interceptors, options=self._options)
        self._register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection([*self._names, HEALTH, reflection.SERVICE_NAME], server)
        return server

    def _bind_main(self, main: grpc.aio.Server) -> str:
        address = self._listeners.grpc
        if self._front is None or address.startswith("unix:"):
            return _bind(main, address, self._credentials)
        _bind(main, self._front.inner, None)
        return _listen(self._front, address)

    def _start_metrics(self) -> str:
        host, _, port = self._listeners.metrics.rpartition(":")
        try:
            self._metrics = Exporter(self._registry, host, int(port), own_names(host))
        except OSError as error:
            raise BindError(f"metrics: cannot bind {self._listeners.metrics}: {error}") from None
        return self._metrics.address

    async def set_serving(self, serving: bool) -> None:
        """Readiness of every service name and of the empty one."""
        for name in ("", *self._names):
            await self._health.set(name, _status(serving))

    async def set_live(self, live: bool) -> None:
        """Liveness, under the service name "liveness"."""
        await self._health.set(LIVENESS, _status(live))

    async def stop(self, grace_s: float) -> None:
        """NOT_SERVING, then closes the listeners; running calls have grace_s."""
        await self._health.enter_graceful_shutdown()
        fronts = [front for front in (self._front, self._health_front) if front is not None]
        for front in fronts:
            front.refuse()
        for server in (self._main, self._plain):
            if server is not None:
                await server.stop(grace_s)
        for front in fronts:
            front.close()
        if self._metrics is not None:
            metrics, self._metrics = self._metrics, None
            await asyncio.to_thread(metrics.close)


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    socket = Path(address.removeprefix("unix:")) if address.startswith("unix:") else None
    try:
        if socket is not None:
            socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
        if socket is not None:
            socket.chmod(0o600)
            return address
    except (RuntimeError, OSError) as error:
        raise BindError(f"cannot bind {address}: {error}") from None
    if port == 0:
        raise BindError(f"cannot bind {address}")
    return f"{address.rpartition(':')[0]}:{port}"


def _listen(front: Front, address: str) -> str:
    try:
        return front.listen(address)
    except (OSError, ValueError) as error:
        raise BindError(f"cannot bind {address}: {error}") from None


def _status(serving: bool) -> "health_pb2.HealthCheckResponse.ServingStatus.ValueType":
    kind = health_pb2.HealthCheckResponse
    return kind.SERVING if serving else kind.NOT_SERVING
