"""Sends the headers of a stream, and comment lines, while no event comes: proxies and clients drop what is silent."""

import asyncio
from collections.abc import Callable
from typing import Any

from services.gateway.http.server.exchange import Exchange

GRACE_S = 0.2
"""Time in which a target may still refuse with a status of its own, before the headers say 200."""

SILENT_S = 10.0
"""Longest silence; proxies often end a connection after 30 or 60 s of it."""

COMMENT = b": keep-alive\n\n"


class KeepAlive:
    """Writes from `start` to the end of the block."""

    def __init__(self, exchange: Exchange) -> None:
        """Writes nothing yet."""
        self._exchange = exchange
        self._grace: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "KeepAlive":
        return self

    async def __aexit__(self, *_: Any) -> None:
        if self._grace is not None:
            self._grace.cancel()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    def start(self, placed: Callable[[], bool]) -> None:
        """`placed` tells that a target has the request; until then a status may tell that none takes it."""
        self._grace = asyncio.get_running_loop().call_later(GRACE_S, self._begin, placed)

    def _begin(self, placed: Callable[[], bool]) -> None:
        """Most answers have ended before they need a task for that."""
        self._keeper = asyncio.create_task(self._keep(placed))

    async def _keep(self, placed: Callable[[], bool]) -> None:
        exchange = self._exchange
        while not exchange.begun:
            if placed():
                await exchange.write(COMMENT)
            else:
                await asyncio.sleep(GRACE_S)
        while True:
            await asyncio.sleep(SILENT_S)
            if exchange.silent_s >= SILENT_S:
                await exchange.write(COMMENT)
