"""By which names a listener on loopback is asked: loopback's own, else a web page could reach it by a name of its own.

A page of attacker.example may have that name resolve to 127.0.0.1 (DNS rebinding). For its browser the answers are then
of the page's own origin; only the header Host tells.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from http import HTTPStatus

from services.common.request.errors import Code, Reason
from services.common.serving.addresses import is_loopback, name_of
from services.gateway.http.schema.errors import RefusedError


class Hosts:
    """The names that requests may state."""

    def __init__(self, address: str, names: Collection[str]) -> None:
        """`address` is what the listener binds, `names` are further ones; "*" are all."""
        self._names = {name_of(name) for name in names}
        self._checks = is_loopback(name_of(address)) and "*" not in self._names

    def check(self, host: str | None) -> None:
        """Refuses a foreign name; a request without one is from no browser.

        Raises:
            RefusedError: 421.
        """
        if not self._checks or host is None:
            return
        name = name_of(host)
        if not (is_loopback(name) or name in self._names):
            text = (
                f"Host: {json.dumps(name[:64])} is no name of this machine; the setting http_hosts allows further ones"
            )
            status = HTTPStatus.MISDIRECTED_REQUEST
            raise RefusedError(status, Code.PERMISSION_DENIED, Reason.INVALID_FIELD, text)
