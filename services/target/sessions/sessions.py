"""All open sessions, and the fan-out of each round's news to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from services.target.core.commands import CloseSession, Command
from services.target.core.messages import RoundNews
from services.target.core.sync_points import SyncPoints
from services.target.sessions.session import HEARTBEAT_S, GatewaySession, GoAwayFrame, RoundFrame, StandingFrame
from services.target.sessions.tally import Standing, Tally


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

    def open(self, gateway_id: str, quiet_s: float = HEARTBEAT_S) -> GatewaySession:
        """Opens a session; a draining target says so at once.

        ``quiet_s`` is the longest silence that the gateway wants while it has nothing to hear.
        """
        session = GatewaySession(next(self._numbers), gateway_id, self._capacity, quiet_s)
        self._open[session.number] = session
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
