"""The lasting connection to one target: opens sessions one after another and tells whether the target takes work."""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import grpc

from services.common.request.errors import PacelineError
from services.common.serving.secret import Secret
from services.common.serving.tls import Peers
from services.gateway.fleet.backoff import Backoff
from services.gateway.fleet.pairs import PairEntry
from services.gateway.routing.crowd import Candidate
from services.gateway.routing.routed_request import RoutedRequest
from services.gateway.targets.attempt import Attempt, Outbox
from services.gateway.targets.away import DRAINING, NOT_REACHED, OtherModelError, SessionLostError, cause, kind, words
from services.gateway.targets.heartbeat import TICK_S
from services.gateway.targets.messages import Load, Model, PastRound, Standing, Use
from services.gateway.targets.opening import open_session
from services.gateway.targets.probes import reach
from services.gateway.targets.session import Session
from services.gateway.targets.silence import UNREACHED_AFTER

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dial:
    """How this gateway connects to targets; they must serve one of `models`, without any all the same one.

    `secret` is what targets want to hear. A request may take `longest_s` seconds.
    """

    gateway_id: str
    models: tuple[str, ...]
    peers: Peers
    secret: Secret = field(default_factory=Secret, repr=False)
    longest_s: float = 600.0


class Link:
    """One target as its sources name it; `entry` may be replaced while the address stays."""

    def __init__(
        self, entry: PairEntry, dial: Dial, on_change: Callable[["Link"], None], wanted: Callable[[], Collection[str]]
    ) -> None:
        """`on_change` is called with it whenever the target begins or ceases to take work.

        `wanted` tells the models one of which it must serve; none takes any.
        """
        self.entry = entry
        self._leaves = asyncio.Event()
        self._dial = dial
        self._on_change = on_change
        self._wanted = wanted
        self._held: Session | None = None
        self._failing = False
        self._reached = False
        self._was_lost = False
        self._drains = False
        self._why = NOT_REACHED

    @property
    def retired(self) -> bool:
        """It has left the list, and ends when its requests have."""
        return self._leaves.is_set()

    def retire(self) -> None:
        """It has left the list."""
        self._leaves.set()

    @property
    def _session(self) -> Session | None:
        """The session while it stands; a lost one may be held for a moment longer."""
        return None if self._held is None or self._held.lost else self._held

    @property
    def pair_id(self) -> str:
        """The id that the target itself stated, else that of its source."""
        session = self._session
        return session.pair_id if session else self.entry.key

    @property
    def model(self) -> Model | None:
        """What the target serves, while the session stands."""
        session = self._session
        return session.model if session else None

    @property
    def load(self) -> Load | None:
        """What the target reported last, while the session stands."""
        session = self._session
        return session.load if session else None

    @property
    def away(self) -> str:
        """Why the target takes nothing new, in words; empty while it does."""
        if self._session is None:
            return self._why
        return "" if self.candidate() else DRAINING

    async def rounds(self) -> tuple[PastRound, ...]:
        """The target's latest rounds, oldest first; none when it gives no answer within a second."""
        session = self._session
        return await session.rounds() if session else ()

    def candidate(self) -> Candidate | None:
        """The target as the router sees it, kept up to date; None while it takes nothing new."""
        session = self._session
        if session is None or session.draining or self.retired or self.entry.draining:
            return None
        return session.candidate

    def start(self, job: RoutedRequest, committed: list[int], timeout_s: float, outbox: Outbox) -> Attempt | None:
        """Starts a request; None when the session was lost meanwhile."""
        session = self._session
        return session.start(job, committed, timeout_s, outbox) if session else None

    def ask(self, job: RoutedRequest) -> asyncio.Future[PacelineError | None] | None:
        """Asks whether another generation holds the job's key; None without a session that can answer."""
        session = self._session
        return session.ask(job) if session and "ask" in session.features else None

    def keep(self, job: RoutedRequest) -> bool:
        """Has the target keep the key of a request that has ended elsewhere; whether it will."""
        session = self._session
        if session is None or "ask" not in session.features or self.candidate() is None:
            return False
        session.keep(job)
        return True

    def settled(self, longest_s: float) -> bool:
        """The target has taken requests for so long, and this gateway has not lost it within that time."""
        session = self._session
        return session is not None and (session.open_s if self._was_lost else session.up_s) > longest_s

    @property
    def open_s(self) -> float:
        """How long its session has stood; 0 without one."""
        return self._session.open_s if self._session else 0.0

    @property
    def counts(self) -> bool:
        """The target takes work and counts tenants over all gateways."""
        session = self._session
        return session is not None and "tally" in session.features and self.candidate() is not None

    def state(self, stated: Use) -> asyncio.Future[Standing | None] | None:
        """States what a tenant has at this gateway; None without a session that can answer."""
        session = self._session
        return session.state(stated) if session and "tally" in session.features else None

    async def run(self) -> None:
        """Keeps a session until the link is retired and idle."""
        backoff = Backoff()
        while not self.retired:
            try:
                async with self._dial.peers.connect(self.entry.address) as channel:
                    await self._hold(await self._open(channel), backoff)
            except (grpc.RpcError, SessionLostError, TimeoutError, OSError) as error:
                self._report(error)
            except Exception as error:
                self._why = words(error)
                log.exception("session failed")
            if not self.retired:
                await backoff.wait()

    async def _open(self, channel: grpc.aio.Channel) -> Session:
        asked = reach(self._dial.peers, self.entry.address, UNREACHED_AFTER * TICK_S)
        return await open_session(channel, self._dial.gateway_id, self._changed, asked, self._dial.secret)

    def _changed(self) -> None:
        session = self._held
        if session is not None and session.draining and not self._drains:
            self._drains = True
            log.info("target drains", extra={"data": {"target": self.entry.address, "pair": session.pair_id}})
        self._on_change(self)

    def _report(self, error: Exception) -> None:
        """Logs the first failure of a row and of each kind; others of a target that stays away are for debugging.

        One that has said that it would end is not lost: what a rollout does to every pair is no warning.
        """
        why = words(error)
        known = self._failing and kind(why) == kind(self._why)
        level = logging.DEBUG if known else logging.INFO if self._drains else logging.WARNING
        self._failing, self._why = True, why
        what = ("target left" if self._drains else "target lost") if self._reached else "target not reached yet"
        log.log(level, what, extra={"data": {"target": self.entry.address, "why": why, "error": cause(error)}})

    def _report_reached(self, session: Session) -> None:
        """Logs it as its loss was, so that whoever reads of that reads of this too."""
        level = logging.WARNING if self._failing and not self._drains else logging.INFO
        self._drains = False
        what = "target reached again" if self._reached else "target reached"
        self._reached, self._failing, self._was_lost = True, False, self._reached
        log.log(level, what, extra={"data": {"target": self.entry.address, "pair": session.pair_id}})

    async def _hold(self, session: Session, backoff: Backoff) -> None:
        wanted = self._wanted()
        if wanted and session.model.name not in wanted:
            raise OtherModelError(session.model.name, wanted)
        self._held = session
        self._report_reached(session)
        self._changed()
        retirement = asyncio.create_task(self._retirement(session))
        running = asyncio.create_task(session.run())
        try:
            await asyncio.wait((running, retirement), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                raise SessionLostError(running.result())
        finally:
            backoff.reset()
            self._held = None
            retirement.cancel()
            running.cancel()
            await asyncio.gather(running, retirement, return_exceptions=True)
            self._changed()

    async def _retirement(self, session: Session) -> None:
        await self._leaves.wait()
        while session.busy:
            await asyncio.sleep(0.2)
