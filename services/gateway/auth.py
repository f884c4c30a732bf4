"""API keys: who calls, and default deny when a tenants file is in force.

The file holds SHA-256 digests only. Keys are 256 random bits, so a plain digest cannot be searched; every digest is
compared in constant time, whether or not an earlier one matched.
"""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from services.common.errors import Code, PacelineError, Reason
from services.gateway.admission import Bound, Tenant

ANYBODY = Tenant()
_current: ContextVar[Tenant] = ContextVar("tenant", default=ANYBODY)

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


class TenantsError(ValueError):
    """A tenants file that cannot be used; the message names it."""


def current_tenant() -> Tenant:
    """The tenant of the call being handled."""
    return _current.get()


def digest(key: str) -> str:
    """What the tenants file holds of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


class Tenants:
    """Tenants by the digests of their keys."""

    def __init__(self, digests: dict[str, Tenant]) -> None:
        """Takes hexadecimal SHA-256 digests."""
        self._digests = digests

    def find(self, key: str) -> Tenant | None:
        """The tenant of a key; takes the same time for every key of a length."""
        offered, found = digest(key), None
        for known, tenant in self._digests.items():
            if hmac.compare_digest(offered, known):
                found = tenant
        return found


def load_tenants(path: Path) -> Tenants:
    """Reads [[tenant]] tables: name, key_sha256 (a list), and optional salt, max_requests, max_queued_tokens.

    Raises:
        TenantsError: the file is missing, broken, or has unknown keys.
    """
    try:
        tables = tomllib.loads(path.read_text())["tenant"]
        digests = {known.lower(): _tenant(table) for table in tables for known in table["key_sha256"]}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise TenantsError(f"{path}: {error!r}") from error
    if not all(len(known) == 64 for known in digests):
        raise TenantsError(f"{path}: key_sha256 must hold SHA-256 digests in hexadecimal")
    return Tenants(digests)


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Sets the tenant of each call from `authorization: Bearer KEY`, and refuses every method without a known key."""

    def __init__(self, tenants: Tenants) -> None:
        """Takes the tenants."""
        self._tenants = tenants

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Lets the call pass, or replaces its handler by a refusal."""
        handler = await continuation(details)
        tenant = self._tenants.find(_bearer(details))
        if tenant is None:
            return handler if handler is None else _refusing(handler)
        _current.set(tenant)
        return handler


def _tenant(table: dict[str, Any]) -> Tenant:
    unknown = table.keys() - {"name", "key_sha256", "salt", "max_requests", "max_queued_tokens"}
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}")
    name = str(table["name"])
    salt = str(table.get("salt", f"paceline tenant {name}")).encode()
    bound = Bound(int(table.get("max_requests", 2**31)), int(table.get("max_queued_tokens", 2**62)))
    return Tenant(name, hashlib.sha256(salt).digest()[:16], bound)


def _bearer(details: grpc.HandlerCallDetails) -> str:
    for name, value in details.invocation_metadata or ():
        if name == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    return ""


def _refusing(handler: Handler) -> Handler:
    """Refuses at the headers: a handler that takes one message would run when that has come, so it takes many."""

    async def refuse(_: Any, context: Any) -> None:
        raise PacelineError(Code.UNAUTHENTICATED, Reason.UNAUTHENTICATED, "a valid API key is needed")

    return grpc.stream_stream_rpc_method_handler(refuse, handler.request_deserializer, handler.response_serializer)
