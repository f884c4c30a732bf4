"""Commands to the engine: a thread-safe inbox that the engine empties between rounds."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from time import monotonic

from services.common.request.errors import PacelineError
from services.target.core.drafts import Drafts
from services.target.core.request import RequestSpec


@dataclass(frozen=True, slots=True)
class Start:
    """Starts or resumes a request for a session, which is one gateway's stream to this target."""

    session: int
    spec: RequestSpec


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reports a request that was found invalid before it reached the engine."""

    session: int
    request_id: str
    error: PacelineError


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels a request; ``tokens_kept`` counts output tokens the gateway kept of it in all."""

    session: int
    request_id: str
    tokens_kept: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckKey:
    """A gateway that starts a request elsewhere asks whether one of another ``owner`` holds its idempotency key here.

    The answer goes to the session under ``request_id``: refused if so, otherwise moved.
    """

    session: int
    request_id: str
    tenant: str
    key: str
    owner: str


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A gateway has a session in which it says of each request that ends how many of its tokens it kept."""

    session: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Cancels the requests of a session; ``undelivered`` counts tokens never written to it, by request id."""

    session: int
    undelivered: dict[str, int]


@dataclass(frozen=True, slots=True)
class Attach:
    """Speculation continues with these drafts."""

    drafts: Drafts


@dataclass(frozen=True, slots=True)
class Detach:
    """Speculation stops if the attachment of this number is the one in use."""

    generation: int
    fallback: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Takes no new request from now on; each is answered "moved"."""


@dataclass(frozen=True, slots=True)
class MoveAll:
    """Ends every live request with "moved": its gateway continues it on another target."""


Command = Start | Refuse | Cancel | CheckKey | OpenSession | CloseSession | Attach | Detach | Drain | MoveAll


_APART_S, _TOGETHER_S = 0.5e-3, 3e-3
"""Commands that come so close one after another are of one burst, which is gathered for so long at most."""


class Inbox:
    """Commands in order of arrival."""

    def __init__(self) -> None:
        """Starts empty."""
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def put(self, command: Command) -> None:
        """Adds a command; any thread may call this."""
        self._queue.put(command)

    def take(self) -> list[Command]:
        """Everything that has arrived, without waiting."""
        commands: list[Command] = []
        while True:
            try:
                commands.append(self._queue.get_nowait())
            except queue.Empty:
                return commands

    def wait(self, timeout_s: float) -> list[Command]:
        """Everything that has arrived, waiting for the first command at most ``timeout_s``."""
        first = self._next(timeout_s)
        return [] if first is None else [first, *self.take()]

    def gather(self) -> list[Command]:
        """Everything that has arrived and what comes close behind it: the requests of a burst come one by one."""
        commands, end = self.take(), monotonic() + _TOGETHER_S
        while monotonic() < end and (command := self._next(_APART_S)) is not None:
            commands += [command, *self.take()]
        return commands

    def _next(self, timeout_s: float) -> Command | None:
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
