"""The HTTP side of a gateway as one object."""

from collections.abc import Mapping

from services.common.serving.tls import TlsFiles
from services.gateway.http.app import HttpApp
from services.gateway.http.endpoints.page import files
from services.gateway.http.reading.body import Bodies
from services.gateway.http.reading.recommended import Recommended, read_recommended
from services.gateway.http.routes import Handler, Routes
from services.gateway.http.server.cors import Origins
from services.gateway.http.server.hosts import Hosts
from services.gateway.http.server.listener import Listener
from services.gateway.intake.inlet import Gates
from services.gateway.settings import GatewaySettings
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.streams.streams import Streams
from services.gateway.targets.status import StatusBoard
from services.gateway.tenancy.tenants import TenantsFile


class HttpEdge:
    """Serves OpenAI's API over the streams of the gateway, and a page for people."""

    def __init__(
        self,
        settings: GatewaySettings,
        front: RequestFactory,
        streams: Streams,
        board: StatusBoard,
        gates: Gates,
        tenants: TenantsFile | None,
        tls: TlsFiles,
        probes: Mapping[str, Handler],
    ) -> None:
        """Binds nothing yet; `probes` are what machines ask without a key, by path.

        Raises:
            OSError: a file of `tls` cannot be used.
            FolderError, TokenizerError: nor can the tokenizer's folder, or generation_config.json in it.
        """
        self._bodies = Bodies(gates)
        recommended: dict[str, Recommended] = {
            one.name: read_recommended(one.folder)
            for one in front.catalogue.languages
            if one.settings.generation_config in ("", "auto")
        }
        routes = Routes(front, streams, board, self._bodies, recommended)
        app = HttpApp(
            {**(files() if settings.http_page else {}), **probes},
            routes,
            tenants.find if tenants else None,
            Origins(settings.http_cors_origins),
            Hosts(settings.http, settings.http_hosts),
            streams.calls,
        )
        self._listener = Listener(settings.http, app.serve, app.refused, streams.calls.dropped, tls)

    async def start(self) -> str:
        """Listens; returns the address as bound.

        Raises:
            BindError: it cannot be bound.
        """
        return await self._listener.start()

    async def stop(self, grace_s: float) -> None:
        """Lets requests end within the grace, and ends them then."""
        await self._listener.stop(grace_s)
        self._bodies.close()
