"""What threads of a target tell its engine: requests, ends of sessions, drafters that come and go."""

from __future__ import annotations

from dataclasses import dataclass

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

    The answer goes to the session under ``request_id``: refused if so, otherwise moved. Of one that has ``ended`` on
    another target the key is kept here too, without an answer.
    """

    session: int
    request_id: str
    tenant: str
    key: str
    owner: str
    ended: bool = False


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
