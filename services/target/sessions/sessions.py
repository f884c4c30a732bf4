"""Sessions of gateways: their frames, and the fan-out of each round's news to all that are open."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import ClassVar

from services.target.core.commands import CloseSession, Command, OpenSession
from services.target.core.launching import LAUNCH_S, Launching
from services.target.core.load import Load
from services.target.core.messages import RoundNews, Update
from services.target.core.sync_points import SyncPoints
from services.target.sessions.tally import Standing, Tally

_FEW_UPDATES = 8
HEARTBEAT_S = 0.5
"""Longest silence towards a gateway that has requests here or does not know the load, or that asked for no other."""
LONGEST_QUIET_S = 10.0
"""A gateway gives up a target that is silent for 12 s, whatever it asked for."""


@dataclass(frozen=True, slots=True)
class RoundFrame:
    """All updates of one session in one round; without updates it is a heartbeat."""

    number: int
    load: Load
    speculating: bool
    updates: tuple[Update, ...] = ()

    @property
    def large(self) -> bool:
        """Whether to make bytes of it takes long enough to disturb a launch."""
        return len(self.updates) > _FEW_UPDATES


@dataclass(frozen=True, slots=True)
class GoAwayFrame:
    """The target will end; requests that still run after ``grace_s`` seconds are moved."""

    grace_s: float
    large: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class StandingFrame:
    """The answer to what a gateway stated of a tenant, by its number; `gateways` have a session here."""

    number: int
    standing: Standing
    gateways: int
    large: ClassVar[bool] = False


Frame = RoundFrame | GoAwayFrame | StandingFrame


class SlowGatewayError(RuntimeError):
    """The gateway has not read its stream for too long."""


class GatewaySession:
    """Frames that wait to be sent to one gateway. Used on the event loop only."""

    def __init__(self, number: int, gateway_id: str, capacity: int, quiet_s: float = HEARTBEAT_S) -> None:
        """Opens a session with room for ``capacity`` unread frames.

        ``quiet_s`` is the longest silence while it has nothing to hear.
        """
        self.number = number
        self.gateway_id = gateway_id
        self.last_frame = 0.0
        self._quiet_s = min(max(quiet_s, HEARTBEAT_S), LONGEST_QUIET_S)
        self._expecting: set[str] = set()
        self._told: tuple[Load, bool] | None = None
        self._capacity = capacity
        self._outbox: deque[Frame] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self._overflowed = False

    def expect(self, request_id: str) -> None:
        """The gateway has started a request, and waits until it ends."""
        self._expecting.add(request_id)

    def due(self, load: Load, speculating: bool, now: float) -> bool:
        """Whether the gateway should hear from a round without news of its requests."""
        waits = self._expecting or (load, speculating) != self._told
        return now - self.last_frame >= (HEARTBEAT_S if waits else self._quiet_s)

    def put(self, frame: Frame, now: float) -> None:
        """Queues a frame; a full outbox ends the session instead."""
        if self._closed:
            return
        if isinstance(frame, RoundFrame):
            self._told = frame.load, frame.speculating
            for one in frame.updates:
                if one.end is not None:
                    self._expecting.discard(one.request_id)
        if len(self._outbox) >= self._capacity:
            self._overflowed = self._closed = True
        else:
            self._outbox.append(frame)
            self.last_frame = now
        self._wake.set()

    def close(self) -> None:
        """Ends the stream after the frames queued so far."""
        self._closed = True
        self._wake.set()

    async def frames(self) -> AsyncIterator[Frame]:
        """Frames in order until the session is closed.

        Raises:
            SlowGatewayError: The outbox overflowed.
        """
        while True:
            if self._overflowed:
                raise SlowGatewayError(f"{len(self._outbox)} frames unread")
            if self._outbox:
                yield self._outbox.popleft()
            elif self._closed:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def undelivered(self) -> dict[str, int]:
        """Tokens of frames never sent, by request."""
        tokens: dict[str, int] = {}
        for frame in self._outbox:
            for update in frame.updates if isinstance(frame, RoundFrame) else ():
                tokens[update.request_id] = tokens.get(update.request_id, 0) + len(update.tokens)
        return tokens


class Sessions:
    """Sessions by number. Used on the event loop only; ``submit`` reaches the engine from any thread."""

    def __init__(
        self, submit: Callable[[Command], None], capacity: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Starts without sessions; each may leave ``capacity`` frames unread."""
        self._submit = submit
        self._capacity = capacity
        self._clock = clock
        self._numbers = count(1)
        self._open: dict[int, GatewaySession] = {}
        self._go_away: GoAwayFrame | None = None
        self.tally = Tally()
        SyncPoints.from_environment().stand_before(deliver=self.deliver)

    def __len__(self) -> int:
        """Open sessions."""
        return len(self._open)

    def open(self, gateway_id: str, quiet_s: float = HEARTBEAT_S, settles: bool = False) -> GatewaySession:
        """Opens a session; a draining target says so at once.

        ``quiet_s`` is the longest silence that the gateway wants while it has nothing to hear; one that
        ``settles`` says of each request how much of it was kept.
        """
        session = GatewaySession(next(self._numbers), gateway_id, self._capacity, quiet_s)
        self._open[session.number] = session
        if settles:
            self._submit(OpenSession(session.number))
        if self._go_away is not None:
            session.put(self._go_away, self._clock())
        return session

    def leave(self, session: GatewaySession) -> None:
        """Forgets a session and cancels what is left of it."""
        if self._open.pop(session.number, None) is not None:
            self.tally.leave(session.number)
            self._submit(CloseSession(session.number, session.undelivered()))

    def stand(self, session: GatewaySession, number: int, standing: Standing) -> None:
        """Answers what a gateway stated of a tenant."""
        gateways = len({one.gateway_id for one in self._open.values()})
        session.put(StandingFrame(number, standing, gateways), session.last_frame)

    def deliver(self, news: RoundNews) -> None:
        """Gives each session its updates of a round; others hear of it when the load changed, or now and then."""
        now = self._clock()
        for session in self._open.values():
            updates = news.by_session.get(session.number)
            if updates or session.due(news.load, news.speculating, now):
                frame = RoundFrame(news.number, news.load, news.speculating, tuple(updates or ()))
                session.put(frame, now)

    def go_away(self, grace_s: float) -> None:
        """Tells every gateway, present or future, that the target will end."""
        self._go_away = GoAwayFrame(grace_s)
        for session in self._open.values():
            session.put(self._go_away, self._clock())

    def close_all(self) -> None:
        """Ends every stream after what is queued."""
        for session in self._open.values():
            session.close()


async def launched(launching: Launching) -> None:
    """Waits while a round is being launched; at once when none is, or when it takes long."""
    if not launching.lasts:
        return
    over = asyncio.Event()
    if launching.when_over(partial(post, asyncio.get_running_loop(), over.set)):
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), LAUNCH_S)


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: object) -> None:
    """Runs a call on the loop, from any thread; does nothing once the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *values)
