"""A TCP proxy that misbehaves on purpose: latency, bandwidth, slicing, partitions, resets; switched while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, replace
from typing import Any

_READ_BYTES = 65_536
_PIECES = 256
_ABORT = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong with the wire; the default is nothing.

    `latency_s` delays every piece, `bytes_per_s` bounds each direction of each connection (0: no bound), `slice_bytes`
    cuts the stream into pieces of at most that size (0: as they come). A held direction delivers nothing and loses
    nothing, as TCP does over a link that is down, and delivers it all once it heals.
    """

    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    slice_bytes: int = 0
    hold_to_server: bool = False
    hold_to_client: bool = False


class FaultProxy:
    """Stands between clients and one server; `address` is where clients connect."""

    def __init__(self, host: str, port: int) -> None:
        """The server's address; connections to it are made one for one."""
        self._upstream = (host, port)
        self._faults = Faults()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.connections = 0

    async def start(self) -> str:
        """Listens on a port of the system's choice."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    def set(self, **changes: Any) -> None:
        """Changes some faults, for connections that stand too."""
        self._faults = replace(self._faults, **changes)
        self._changed.set()
        self._changed = asyncio.Event()

    def heal(self) -> None:
        """Nothing is wrong any more; what was held is delivered."""
        self._faults = Faults()
        self.set()

    def reset(self) -> int:
        """Ends every connection by RST on both sides and returns how many ends that were."""
        writers = [*self._writers]
        for writer in writers:
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            writer.transport.abort()
        return len(writers)

    async def stop(self) -> None:
        """Stops listening and ends every connection."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self._writers.add(client_out)
        try:
            server_in, server_out = await asyncio.open_connection(*self._upstream)
            self._writers.add(server_out)
            try:
                pipes = (self._pipe(client_in, server_out, True), self._pipe(server_in, client_out, False))
                await asyncio.gather(*pipes)
            finally:
                self._drop(server_out)
        except (OSError, asyncio.CancelledError):
            return
        finally:
            self._drop(client_out)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, to_server: bool) -> None:
        """One direction; reading runs ahead of writing by a bounded number of pieces, so that latency costs no rate."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES)
        reading = asyncio.create_task(self._read(source, pieces))
        try:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                await self._pass(to_server)
                if not piece:
                    sink.write_eof()
                    return
                sink.write(piece)
                await sink.drain()
                if self._faults.bytes_per_s:
                    await asyncio.sleep(len(piece) / self._faults.bytes_per_s)
        finally:
            reading.cancel()

    async def _read(self, source: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = await source.read(_READ_BYTES)
            except ConnectionError:
                data = b""
            due = asyncio.get_running_loop().time() + self._faults.latency_s
            size = self._faults.slice_bytes or len(data) or 1
            for start in range(0, max(len(data), 1), size):
                await pieces.put((due, data[start : start + size]))

    async def _pass(self, to_server: bool) -> None:
        """Waits while the direction is held."""
        while self._faults.hold_to_server if to_server else self._faults.hold_to_client:
            await self._changed.wait()
