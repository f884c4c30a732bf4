"""The tenants file: tenants, their keys and limits. The gateway follows its changes.

The file holds SHA-256 digests only. Keys are 256 random bits, so a plain digest cannot be searched; every digest is
compared in constant time, whether or not an earlier one matched.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import tomllib
from pathlib import Path
from typing import Any

from services.common.request.limits import LIMITS
from services.common.serving.followed import FollowedFile
from services.gateway.tenancy.admission import UNBOUNDED, Bound, Tenant

logger = logging.getLogger(__name__)
FIELDS = frozenset(
    {"name", "key_sha256", "salt", "max_requests", "max_queued_tokens", "max_priority", "tokens_per_minute"}
)
DIGEST = re.compile(r"[0-9a-f]{64}")


class TenantsError(ValueError):
    """A tenants file that cannot be used; the message names it."""


def digest(key: str) -> str:
    """What the tenants file holds of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


class Tenants:
    """Tenants by the digests of their keys."""

    def __init__(self, digests: dict[str, Tenant]) -> None:
        """Takes hexadecimal SHA-256 digests."""
        self._digests = digests

    @property
    def names(self) -> list[str]:
        """Names of all, as they stand in the file."""
        return list(dict.fromkeys(tenant.name for tenant in self._digests.values()))

    def find(self, key: str) -> Tenant | None:
        """The tenant of a key; takes the same time for every key of a length."""
        offered, found = digest(key), None
        for known, tenant in self._digests.items():
            if hmac.compare_digest(offered, known):
                found = tenant
        return found


def _complain(error: Exception) -> None:
    logger.error("the tenants stay as they were: %s", error)


class TenantsFile:
    """The tenants of a file as it is now. A file that cannot be used changes nothing and is logged once."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises:
            TenantsError: it is missing or cannot be used.
        """
        self._path = path
        self._tenants = Tenants({})
        try:
            self._file = FollowedFile(path, self._take, _complain)
        except OSError as error:
            raise TenantsError(f"{path}: cannot be read: {error.strerror}") from error

    def find(self, key: str) -> Tenant | None:
        """As Tenants.find."""
        return self._tenants.find(key)

    @property
    def names(self) -> list[str]:
        """As Tenants.names."""
        return self._tenants.names

    async def follow(self) -> None:
        """Looks at the file every second."""
        await self._file.follow()

    async def look(self) -> None:
        """Takes in what has changed; calls that run go on."""
        await self._file.look()

    def _take(self, data: bytes) -> None:
        self._tenants = parse_tenants(self._path, data)


def parse_tenants(path: Path, data: bytes) -> Tenants:
    """The tenants of a file's content: [[tenant]] tables with name, key_sha256 (a list), and the optional FIELDS.

    Raises:
        TenantsError: it is broken, has unknown keys, or leaves open whose a key is.
    """
    try:
        return Tenants(_digests(tomllib.loads(data.decode())["tenant"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TenantsError(f"{path}: {_why(error)}; paceline key NAME prints an entry") from error


def _why(error: Exception) -> str:
    """What is wrong with the file, in words; values of keys are not repeated."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"is no TOML: {error}"
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, KeyError):
        missing = error.args[0]
        return "has no [[tenant]] table" if missing == "tenant" else f"a [[tenant]] has no {missing}"
    if isinstance(error, AttributeError | TypeError):
        return "is made of [[tenant]] tables with name and key_sha256, a list of digests"
    return str(error)


def _digests(tables: list[dict[str, Any]]) -> dict[str, Tenant]:
    found: dict[str, Tenant] = {}
    names: set[str] = set()
    for table in tables:
        tenant = _tenant(table)
        if tenant.name in names:
            raise ValueError(f"the name {tenant.name!r} stands twice")
        names.add(tenant.name)
        if not isinstance(table["key_sha256"], list):
            raise TypeError
        for index, known in enumerate(str(each).lower() for each in table["key_sha256"]):
            if not DIGEST.fullmatch(known):
                raise ValueError(f"key_sha256[{index}] of {tenant.name!r} is no SHA-256 digest in hexadecimal")
            if known in found:
                raise ValueError(f"key_sha256[{index}] of {tenant.name!r} stands under {found[known].name!r} already")
            found[known] = tenant
    return found


def _tenant(table: dict[str, Any]) -> Tenant:
    unknown = table.keys() - FIELDS
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}")
    name = str(table["name"])
    if not name:
        raise ValueError("a tenant has an empty name")
    for limit in ("max_requests", "max_queued_tokens"):
        if int(table.get(limit, 0)) < 0:
            raise ValueError(f"{limit} of {name!r}: {table[limit]} is negative")
    salt = str(table.get("salt", f"paceline tenant {name}")).encode()
    bound = Bound(int(table.get("max_requests", UNBOUNDED)), int(table.get("max_queued_tokens", 2**62)))
    priority = int(table.get("max_priority", 0))
    if not 0 <= priority <= LIMITS.priority:
        raise ValueError(f"max_priority of {name!r}: {priority} is not in [0, {LIMITS.priority}]")
    tokens = int(table.get("tokens_per_minute", 0))
    if not 0 <= tokens < 2**62:
        raise ValueError(f"tokens_per_minute of {name!r}: {tokens} is no number of tokens")
    return Tenant(name, hashlib.sha256(salt).digest()[:16], bound, priority, tokens)
