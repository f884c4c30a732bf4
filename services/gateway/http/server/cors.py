"""Web pages of other origins: only those that a list names may call."""

from collections.abc import Collection

from services.gateway.http.schema.errors import Headers

ALLOWED_HEADERS = b"authorization, x-api-key, content-type, idempotency-key, x-request-id, x-request-timeout"
EXPOSED_HEADERS = b"x-request-id, retry-after"
MAX_AGE_S = b"600"


class Origins:
    """The origins whose pages may call, exactly as browsers state them; "*" are all."""

    def __init__(self, allowed: Collection[str]) -> None:
        """An empty list allows none."""
        self._allowed = frozenset(allowed)

    def headers(self, origin: str | None) -> Headers:
        """What an answer says to a page of this origin; nothing to one that may not call."""
        if origin is None or not ({origin, "*"} & self._allowed):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED_HEADERS),
            (b"vary", b"origin"),
        ]

    def preflight(self, origin: str | None) -> Headers:
        """What a browser learns before it sends a request."""
        headers = self.headers(origin)
        if not headers:
            return []
        return [
            *headers,
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", MAX_AGE_S),
        ]
