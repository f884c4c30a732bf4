"""Web pages of other origins: only those that a list names may call."""

import json
import re
from collections.abc import Collection, Mapping
from http import HTTPStatus

from services.common.request.errors import Code, Reason
from services.gateway.http.schema.errors import Headers, RefusedError

ALLOWED_HEADERS = "authorization, x-api-key, content-type, idempotency-key, x-request-id, x-request-timeout"
EXPOSED_HEADERS = b"x-request-id, retry-after, " + b", ".join(
    b"x-ratelimit-%b-%b" % (what, of) for of in (b"requests", b"tokens") for what in (b"limit", b"remaining", b"reset")
)
NAMES = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ ,]+[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
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

    def preflight(self, origin: str, asked: Mapping[str, str]) -> Headers:
        """What a browser learns before it sends a request: a page that may call may send whatever headers it asks for.

        Clients of OpenAI and Anthropic in pages send a dozen of their own.

        Raises:
            RefusedError: 403, pages of this origin may not call.
        """
        headers = self.headers(origin)
        if not headers:
            text = f"Origin: {json.dumps(origin[:64])} may not call; the setting http_cors_origins names those that may"
            raise RefusedError(HTTPStatus.FORBIDDEN, Code.PERMISSION_DENIED, Reason.INVALID_FIELD, text)
        names = asked.get("access-control-request-headers", "")
        names = names if NAMES.fullmatch(names) else ALLOWED_HEADERS
        private = asked.get("access-control-request-private-network") == "true"
        return [
            *headers,
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", names.encode()),
            (b"access-control-max-age", MAX_AGE_S),
            *([(b"access-control-allow-private-network", b"true")] if private else []),
        ]
