"""What probes ask without a key: /health and /ping tell whether requests are taken, /version which build answers."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from services.common.metrics.version import VERSION
from services.gateway.http.schema.errors import wrong_method
from services.gateway.http.server.exchange import Exchange, encoded

FRESH = [(b"cache-control", b"no-store")]


class Health:
    """200 while requests are taken and 503 else, both without a body, as vLLM and SageMaker's platform have it."""

    def __init__(self, ready: Callable[[], bool], methods: tuple[str, ...]) -> None:
        """`ready` tells whether a target takes work and the gateway stays."""
        self._ready = ready
        self._methods = methods

    async def __call__(self, exchange: Exchange) -> None:
        """Answers one probe.

        Raises:
            RefusedError: the method is another one.
        """
        if exchange.method not in self._methods:
            raise wrong_method(", ".join(self._methods))
        status = HTTPStatus.OK if self._ready() else HTTPStatus.SERVICE_UNAVAILABLE
        await exchange.reply(b"", status, FRESH)


async def version(exchange: Exchange) -> None:
    """Tells the version.

    Raises:
        RefusedError: the method is another one.
    """
    if exchange.method not in ("GET", "HEAD"):
        raise wrong_method("GET, HEAD")
    await exchange.reply(encoded({"version": VERSION}))


def probes(ready: Callable[[], bool]) -> Mapping[str, Callable[[Exchange], Awaitable[None]]]:
    """The handlers by path."""
    return {
        "/health": Health(ready, ("GET", "HEAD")),
        "/ping": Health(ready, ("GET", "HEAD", "POST")),
        "/version": version,
    }
