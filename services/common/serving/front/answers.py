"""What gRPC says to a client: passed on, and followed by the calls that it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.common.serving.front.open_calls import OpenCalls

if TYPE_CHECKING:
    from services.common.serving.front.relay import Relay

BUFFER = memoryview(bytearray(1 << 16))
"""The buffer that every connection reads into, each for one call."""


class Answers(asyncio.BufferedProtocol):
    """gRPC's side of a relay."""

    def __init__(self, relay: Relay, calls: OpenCalls, client: asyncio.WriteTransport) -> None:
        """Passes on to `client`, which has these open `calls`. A client that is gone is written nothing."""
        self._relay, self._calls, self._client = relay, calls, client
        self._clock = asyncio.get_running_loop().time

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer that everybody uses."""
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes for the client came."""
        data = bytes(BUFFER[:nbytes])
        self._relay.heard = self._clock()
        self._calls.answered(data)
        self._client.write(data)

    def pause_writing(self) -> None:
        """gRPC takes no more for now."""
        self._relay.hold(True)

    def resume_writing(self) -> None:
        """It takes more."""
        self._relay.hold(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """gRPC has closed."""
        self._relay.answered()
