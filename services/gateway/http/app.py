"""Serves one HTTP request: authentication, routing, and every way in which a request can end."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus

from services.common.request.errors import Code, PacelineError, Reason, unavailable
from services.gateway.admission import Tenant
from services.gateway.auth import ANYBODY, set_tenant
from services.gateway.http.connection import Connection, Receive, Scope, Send
from services.gateway.http.cors import Origins
from services.gateway.http.errors import known
from services.gateway.http.exchange import DisconnectedError, Exchange
from services.gateway.http.hosts import Hosts
from services.gateway.http.routes import Handler, Routes

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
    ) -> None:
        """`public` are the paths that need no key; `find` gives the tenant of one, without it everybody may call."""
        self._public = public
        self._routes = routes
        self._find = find
        self._origins = origins
        self._hosts = hosts

    async def serve(self, connection: Connection, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; nothing is raised but the end of the process."""
        exchange = Exchange(scope, receive, send)
        connection.serving(asyncio.current_task())
        try:
            await self._ended(connection, exchange)
        except asyncio.CancelledError:  # while it was told why its request ends
            connection.abort()
        finally:
            connection.serving(None)

    async def _ended(self, connection: Connection, exchange: Exchange) -> None:
        try:
            await self._answer(connection, exchange)
        except DisconnectedError:
            return
        except asyncio.CancelledError:
            await self._leave(connection, exchange)
        except Exception as error:
            await self._refuse(connection, exchange, known(error))

    async def _answer(self, connection: Connection, exchange: Exchange) -> None:
        exchange.words = self._routes.words(exchange.path)
        self._hosts.check(exchange.headers.get("host"))
        origin = exchange.headers.get("origin")
        if exchange.method == "OPTIONS":
            exchange.extra += self._origins.preflight(origin)
            await exchange.reply(b"", HTTPStatus.OK if exchange.extra else HTTPStatus.FORBIDDEN)
            return
        exchange.extra += self._origins.headers(origin)
        if open_to_all := self._public.get(exchange.path):
            await open_to_all(exchange)
            return
        exchange.name()
        tenant = self._tenant(exchange)
        set_tenant(tenant)
        if tenant is not ANYBODY:
            connection.know()
        await self._routes.find(exchange)(exchange)

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

    async def _leave(self, connection: Connection, exchange: Exchange) -> None:
        """The client has gone, or the gateway goes."""
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self._refuse(connection, exchange, unavailable(Reason.DRAINING, "the gateway is going away"))
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
