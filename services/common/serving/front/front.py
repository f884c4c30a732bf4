"""Listens in the place of gRPC, which listens on a Unix socket in a folder of this user alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
import socket
import ssl
import tempfile
import weakref
from functools import cached_property
from pathlib import Path

from services.common.serving.addresses import address_of
from services.common.serving.front.allowance import Allowance
from services.common.serving.front.doorman import CONNECTIONS, Doorman, Dropped, Find
from services.common.serving.front.relay import OPENING_S, Relay

logger = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTS_A_SECOND, ACCEPTS_AT_ONCE = 1_000.0, 256.0
"""New connections; more wait in the kernel."""

RETRY_S = 0.25
SAY_AGAIN_S = 10.0


class Front:
    """One listener of clients, in plaintext or TLS."""

    def __init__(
        self,
        find: Find | None = None,
        context: ssl.SSLContext | None = None,
        most: int = CONNECTIONS,
        dropped: Dropped = lambda reason: None,
        proof: bool = False,
        probes: bool = False,
    ) -> None:
        """Binds nothing yet; `find` and `context` are None where no key is needed, and for plaintext.

        `dropped` hears why a connection had to end, as the doorman tells it. With `proof` a peer may do little until
        the service has called `prove`. A listener for `probes` has short calls alone.
        """
        self._probes = probes
        self._proof, self._by_path = proof, weakref.WeakValueDictionary[str, Relay]()
        self._numbers = itertools.count()
        self._most, self._dropped = most, dropped
        self._find, self._context = find, context
        self._socket: socket.socket | None = None
        self._said = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    @cached_property
    def _folder(self) -> Path:
        """Made when it is needed, so that a process that ends while it starts leaves none behind."""
        folder = tempfile.mkdtemp(prefix="paceline-front-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    @property
    def inner(self) -> str:
        """Where gRPC must listen."""
        return f"unix:{self._folder / 'grpc'}"

    def listen(self, address: str) -> str:
        """Takes connections from now on; gRPC must listen at `inner`. Returns host:port as bound.

        Raises:
            OSError: the address cannot be bound.
        """
        self._loop = asyncio.get_running_loop()
        self._doorman = Doorman(self._find, self._loop.time, self._most, self._dropped, self._proof, self._probes)
        self._pace = Allowance(ACCEPTS_A_SECOND, ACCEPTS_AT_ONCE, self._loop.time)
        host, _, port = address.rpartition(":")
        found = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = found[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host.strip("[]") not in ("", "::"))
        self._socket.bind(where)
        self._socket.listen(BACKLOG)
        self._loop.add_reader(self._socket, self._accept)
        return f"{host}:{self._socket.getsockname()[1]}"

    def stated(self, peer: str) -> frozenset[str]:
        """DNS names of the certificate of a connection that gRPC calls `peer`; known where proof is asked for."""
        relay = self._by_path.get(peer.removeprefix("unix:"))
        return frozenset() if relay is None else relay.stated

    def prove(self, peer: str) -> None:
        """The service knows who is behind a connection."""
        relay = self._by_path.get(peer.removeprefix("unix:"))
        if relay is not None:
            relay.prove()

    def refuse(self) -> None:
        """Takes no more connections; those that are open go on."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Ends everything."""
        self.refuse()
        for relay in self._doorman.relays if hasattr(self, "_doorman") else []:
            relay.abort()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        if self._socket is None:
            return
        try:
            client, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._failed(error)
            self._later(RETRY_S)
            return
        client.setblocking(False)
        with contextlib.suppress(OSError):  # a client that has gone
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._serve(client, address_of(peer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        wait_s = self._pace.take()
        if wait_s:
            self._later(wait_s)

    def _later(self, seconds: float) -> None:
        """Takes the next connection then; until that time they wait in the kernel."""
        assert self._socket is not None, "only a listener has connections that wait"
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(seconds, self._again)

    def _again(self) -> None:
        self._retry = None
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept)

    async def _serve(self, client: socket.socket, address: str) -> None:
        own = str(self._folder / str(next(self._numbers))) if self._proof else ""
        relay = Relay(client, address, self._doorman, self.inner.removeprefix("unix:"), self._failed, own)
        if own:
            self._by_path[own] = relay
        if not self._doorman.enter(relay):
            client.close()
            return
        try:
            await asyncio.sleep(self._doorman.patience(relay))
            if not self._doorman.knows(relay):  # it made room for another one while it waited
                client.close()
                return
            await self._loop.connect_accepted_socket(
                lambda: relay,
                client,
                ssl=self._context,
                ssl_handshake_timeout=OPENING_S if self._context else None,
            )
        except OSError:  # TLS that failed or came too late, or a client that has gone
            self._doorman.leave(relay)
            client.close()

    def _failed(self, error: OSError) -> None:
        """Says that descriptors or memory are short, once in a while: there may be thousands of errors a second."""
        now = self._loop.time()
        if now - self._said >= SAY_AGAIN_S or not self._said:
            self._said = now
            logger.error("new connections wait: %s", error)
