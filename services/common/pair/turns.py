"""Turns over a Unix socket: a message of Pace and its answer, of fixed size, between threads that wait for each other.

Unlike gRPC this wakes no other thread. A message and its answer take some 20 us; over gRPC, with six threads and two
event loops, they take up to 3 ms on busy cores.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

NODES, BEHIND_PROMPTS, DRAWN = 1, 2, 4
"""Bits of a request: for trees; behind a round of prompts; and for rows of which some draw their tokens."""


class Ask(NamedTuple):
    """The target wants one round of drafts; the fields are those of PaceRequest, its flags `NODES` and the like."""

    generation: int
    round: int
    bucket: int
    width: int
    rows: int
    bits: int = 0


class Answer(NamedTuple):
    """The mailbox holds a round; the fields are those of PaceResponse."""

    generation: int
    round: int
    draft_us: int


Sent = TypeVar("Sent", bound=tuple[int, ...])
Received = TypeVar("Received", bound=tuple[int, ...])
_ASK = struct.Struct("<QQIIIB")
_ANSWER = struct.Struct("<QQI")


class TurnSocket(Generic[Sent, Received]):
    """One end of the connection. One thread sends and receives; `close` may come from any, and wakes it."""

    def __init__(
        self,
        connection: socket.socket,
        sent: struct.Struct,
        received: struct.Struct,
        make: Callable[[Iterable[Any]], Received],
    ) -> None:
        """Owns the connection; see `asking_end` and `answering_end`."""
        self._connection = connection
        self._sent, self._received, self._make = sent, received, make
        self._rest = b""
        self._using = threading.Lock()

    def send(self, message: Sent) -> bool:
        """Sends a message; False to a peer that is gone, or does not read. `receive` finds these out, too."""
        try:
            with self._using:
                self._connection.send(self._sent.pack(*message))
        except OSError:
            return False
        return True

    def receive(self, timeout_s: float | None) -> Received | None:
        """The next message; None when the connection has ended. A timeout of None waits for good.

        Raises:
            TimeoutError: nothing whole came in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        size = self._received.size
        with self._using:
            while len(self._rest) < size:
                piece = self._piece(size - len(self._rest), deadline)
                if not piece:
                    return None
                self._rest += piece
        whole, self._rest = self._rest, b""
        return self._make(self._received.unpack(whole))

    def close(self) -> None:
        """Ends the connection for both; closing twice is harmless."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with self._using:
            self._connection.close()

    def _piece(self, size: int, deadline: float | None) -> bytes:
        left = None if deadline is None else max(deadline - time.monotonic(), 1e-3)
        try:
            self._connection.settimeout(left)
            return self._connection.recv(size)
        except TimeoutError:
            raise
        except OSError:
            return b""


def asking_end(connection: socket.socket) -> TurnSocket[Ask, Answer]:
    """The target's end."""
    return TurnSocket(connection, _ASK, _ANSWER, Answer._make)


def answering_end(connection: socket.socket) -> TurnSocket[Answer, Ask]:
    """The drafter's end."""
    return TurnSocket(connection, _ANSWER, _ASK, Ask._make)
