"""Serves one HTTP request: authentication, routing, and every way in which a request can end."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus

from services.common.request.errors import Code, PacelineError, Reason, let_go, unavailable
from services.common.serving.tracing import HEADER, valid
from services.gateway.http.routes import Handler, Routes
from services.gateway.http.schema.errors import Headers, RefusedError, known
from services.gateway.http.server.connection import Connection, Receive, Scope, Send
from services.gateway.http.server.cors import Origins
from services.gateway.http.server.exchange import DisconnectedError, Exchange
from services.gateway.http.server.hosts import Hosts
from services.gateway.streams.calls import Call, Calls
from services.gateway.streams.request_id import made
from services.gateway.tenancy.admission import Tenant
from services.gateway.tenancy.auth import ANYBODY, set_tenant

METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE"})
LAST_WORD_S = 1.0
"""Time in which a client may still read why its request ended."""


class HttpApp:
    """Refuses at the headers whom it does not know; then routes."""

    def __init__(
        self,
        public: Mapping[str, Handler],
        routes: Routes,
        find: Callable[[str], Tenant | None] | None,
        origins: Origins,
        hosts: Hosts,
        calls: Calls,
    ) -> None:
        """`public` are the paths that need no key; `find` gives the tenant of one, without it everybody may call."""
        self._public = public
        self._routes = routes
        self._find = find
        self._origins = origins
        self._hosts = hosts
        self._calls = calls

    async def serve(self, connection: Connection, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; nothing is raised but the end of the process."""
        exchange = Exchange(scope, receive, send, connection)
        connection.serving(asyncio.current_task())
        endpoint = exchange.path if exchange.path in self._public else self._routes.endpoint(exchange.path)
        method = exchange.method if exchange.method in METHODS else "_OTHER"
        trace = valid(exchange.headers.get(HEADER, ""))
        try:
            with self._calls.of(endpoint, method, exchange.request_id, trace) as call:
                try:
                    await self._ended(call, connection, exchange)
                finally:
                    call.answered(exchange.status, exchange.status >= HTTPStatus.BAD_REQUEST)
                    if connection.overruled is not None:
                        call.failed(connection.overruled)
                        call.status = int(connection.overruled.status)
        except asyncio.CancelledError:  # while it was told why its request ends
            connection.abort()
        finally:
            connection.serving(None)

    def refused(self, error: RefusedError) -> None:
        """A request could not even be read."""
        self._calls.refuse("_OTHER", made(), int(error.status), error)

    async def _ended(self, call: Call, connection: Connection, exchange: Exchange) -> None:
        try:
            await self._answer(call, connection, exchange)
        except DisconnectedError:
            fault = connection.conn.fault
            call.failed(fault or asyncio.CancelledError())
            call.status = int(fault.status) if fault else 0
        except asyncio.CancelledError as error:
            going = unavailable(Reason.DRAINING, "the gateway is going away")
            call.failed(error if connection.lost else going)
            await self._leave(connection, exchange, going)
        except Exception as error:
            refusal = known(error)
            let_go(error)  # and of the body, before a client that may not read is told
            call.failed(refusal)
            await self._refuse(connection, exchange, refusal)

    async def _answer(self, call: Call, connection: Connection, exchange: Exchange) -> None:
        exchange.words = self._routes.words(exchange.path)
        self._hosts.check(exchange.headers.get("host"))
        origin = exchange.headers.get("origin")
        if exchange.method == "OPTIONS":
            exchange.extra += self._options(exchange, origin)
            await exchange.reply(b"")
            return
        exchange.extra += self._origins.headers(origin)
        if open_to_all := self._public.get(exchange.path):
            await open_to_all(exchange)
            return
        exchange.name()
        call.named(exchange.request_id)
        tenant = self._tenant(exchange)
        set_tenant(tenant)
        self._calls.belongs(call, tenant.name)
        if tenant is not ANYBODY:
            connection.know()
        await self._routes.find(exchange)(exchange)

    def _options(self, exchange: Exchange, origin: str | None) -> Headers:
        """What may be done at a path, or what a page of an origin may do."""
        if origin is not None:
            return self._origins.preflight(origin, exchange.headers)
        served: tuple[str, ...] = ("GET", "HEAD", "POST") if exchange.path == "*" else ("GET", "HEAD")
        if exchange.path != "*" and exchange.path not in self._public:
            served = self._routes.methods(exchange.path)
        return [(b"allow", ", ".join((*served, "OPTIONS")).encode())]

    def _tenant(self, exchange: Exchange) -> Tenant:
        if self._find is None:
            return ANYBODY
        scheme, _, key = exchange.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = exchange.headers.get("x-api-key", "")  # as Anthropic's clients send it
        tenant = self._find(key) if key else None
        if tenant is None:
            raise PacelineError(Code.UNAUTHENTICATED, Reason.UNAUTHENTICATED, "a valid API key is needed")
        return tenant

    async def _leave(self, connection: Connection, exchange: Exchange, going: PacelineError) -> None:
        """The client has gone, or the gateway goes."""
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self._refuse(connection, exchange, going)
        except TimeoutError:
            connection.abort()

    async def _refuse(self, connection: Connection, exchange: Exchange, error: PacelineError) -> None:
        """A client that does not read would not read the refusal either, so unread output is dropped."""
        if connection.lost:
            return
        if exchange.begun and error.reason is Reason.SLOW_CLIENT:
            connection.abort()
            return
        await exchange.refuse(error)
