"""Warns of a source that does not answer: once, and then seldom."""

import logging
import time
from collections.abc import Callable

import grpc

log = logging.getLogger(__name__)
PATIENCE_S = 5.0
AGAIN_S = 600.0


class Outage:
    """The outage of one source; a source that has answered before is reported at once."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes what names the source in the log; the clock gives seconds."""
        self._source = source
        self._clock = clock
        self._since = clock()
        self._next = self._since + PATIENCE_S
        self._told = False

    def over(self) -> None:
        """The source answers: that is told where its outage was, and the next failure is told at once."""
        now = self._clock()
        if self._told:
            data = {"source": self._source, "seconds": round(now - self._since)}
            log.warning("fleet source answers again", extra={"data": data})
        self._told, self._since, self._next = False, now, now

    def goes_on(self, error: Exception) -> None:
        """An attempt failed: warns when PATIENCE_S have passed since the start, then every AGAIN_S."""
        now = self._clock()
        if now < self._next:
            return
        self._next, self._told = now + AGAIN_S, True
        data = {"source": self._source, "seconds": round(now - self._since), "error": _reason(error)}
        log.warning("fleet source does not answer", extra={"data": data})


def _reason(error: Exception) -> str:
    """One line: the text of an RpcError runs over several."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
