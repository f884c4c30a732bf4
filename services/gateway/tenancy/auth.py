"""Finds the tenant of a call by its API key; with a tenants file calls without a key are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import grpc

from services.common.request.errors import Code, PacelineError, Reason
from services.gateway.tenancy.admission import Tenant

ANYBODY = Tenant()
_current: ContextVar[Tenant] = ContextVar("tenant", default=ANYBODY)

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


def current_tenant() -> Tenant:
    """The tenant of the call being handled."""
    return _current.get()


def set_tenant(tenant: Tenant) -> None:
    """Sets the tenant for the present task and the tasks that it starts."""
    _current.set(tenant)


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Sets the tenant of each call from `authorization: Bearer KEY`, and refuses every method without a known key."""

    def __init__(self, find: Callable[[str], Tenant | None]) -> None:
        """`find` gives the tenant of a key."""
        self._find = find

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Lets the call pass, or replaces its handler by a refusal."""
        handler = await continuation(details)
        tenant = self._find(_bearer(details))
        if tenant is None:
            return handler if handler is None else _refusing(handler)
        set_tenant(tenant)
        return handler


def _bearer(details: grpc.HandlerCallDetails) -> str:
    for name, value in details.invocation_metadata or ():
        if name == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    return ""


def _refusing(handler: Handler) -> Handler:
    """Refuses at the headers.

    It is a handler of streams, because a handler of one message runs only when that has come.
    """

    async def refuse(_: Any, context: Any) -> None:
        raise PacelineError(Code.UNAUTHENTICATED, Reason.UNAUTHENTICATED, "a valid API key is needed")

    return grpc.stream_stream_rpc_method_handler(refuse, handler.request_deserializer, handler.response_serializer)
