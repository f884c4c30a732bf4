"""The engine: plan, draft, verify, commit, emit, for every running request at once.

With a runner that looks ahead a round is planned and launched while the one before it runs, and read while the next
one does. Otherwise what a speculative round committed is settled at once, but told when the drafter has the next one to
work on. Knows rounds and requests, not threads, sockets or tensors. One thread calls it (`engine_thread.py`);
everything that other threads want of it arrives as commands between rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter

from services.common.request.errors import Code, PacelineError, Reason
from services.target.core.commands import Attach, Command, Detach
from services.target.core.drafts import Drafts, NoDrafts
from services.target.core.plan import Commit, Plan
from services.target.core.round import Drafted, Landing, RoundRunner, Verified
from services.target.core.sync_points import SyncPoints
from services.target.core.updates import End, RoundNews
from services.target.engine.emit import Emitter, totals
from services.target.engine.meter import Meter
from services.target.engine.recorder import FlightRecorder, RoundEntry
from services.target.engine.requests import CommandDesk
from services.target.scheduling.scheduler import Scheduler

_LOG = logging.getLogger(__name__)
_MOST_FAILED_ROUNDS = 3
_HEARTBEAT_S = 0.5


@dataclass(frozen=True, slots=True)
class _Flight:
    """A round that was launched and not read yet; `host_us` went into its drafts and its launch."""

    plan: Plan
    drafted: Drafted
    land: Landing
    host_us: float


@dataclass(frozen=True, slots=True)
class _Done:
    """A round that was settled and not told yet."""

    plan: Plan
    drafted: Drafted
    verified: Verified
    commit: Commit


class EngineDeadError(RuntimeError):
    """The device is lost, or rounds keep failing: the process must go, so that its requests can move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine works with; ``deliver`` takes the news of each round and must not block."""

    scheduler: Scheduler
    runner: RoundRunner
    emitter: Emitter
    desk: CommandDesk
    meter: Meter
    recorder: FlightRecorder
    deliver: Callable[[RoundNews], object]
    points: SyncPoints = field(default_factory=SyncPoints)
    clock: Callable[[], float] = monotonic


class Engine:
    """Runs rounds. ``steps`` counts those done and ``turns`` passes of the loop; other threads may read both."""

    def __init__(self, parts: EngineParts) -> None:
        """Starts without a drafter: rounds are plain until one is attached."""
        self._parts = parts
        self._drafts: Drafts = NoDrafts()
        self._failed_rounds = 0
        self._delivered = parts.clock()
        self._number = 0
        self._flight: _Flight | None = None
        self._done: _Done | None = None
        self.steps = 0
        self.turns = 0
        self.load = parts.scheduler.load()

    @property
    def pending(self) -> bool:
        """Whether requests are live."""
        return len(self._parts.emitter) > 0

    @property
    def drafts(self) -> Drafts:
        """The attachment in use."""
        return self._drafts

    def turn(self, commands: Sequence[Command]) -> bool:
        """Obeys the commands, drops what has expired, and runs a round if there is work.

        Returns:
            Whether a round ran.

        Raises:
            EngineDeadError: The device is lost, or several rounds failed in a row.
        """
        now = self._parts.clock()
        for command in commands:
            self._obey(command, now)
        self._parts.desk.expire(now)
        ran = self.step()
        if not ran:
            self._deliver_quietly()
        self.turns += 1
        return ran

    def step(self) -> bool:
        """Runs one round, or starts one and reads the one before; False when there is nothing to do."""
        plan, before = self._plan(), self._flight
        if plan.empty:
            self.land()
        if not plan.speculative:
            self._tell()
        if plan.empty:
            return before is not None
        launched = self._launch(plan)
        self.land()
        self._flight = launched
        if not self._parts.runner.look_ahead:
            self.land()
        return True

    def land(self) -> None:
        """Reads the round in flight, if there is one, and commits it."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        try:
            verified = self._verified(flight)
        except Exception as error:
            self._give_up(flight.plan, error)
            return
        self._done = _Done(flight.plan, flight.drafted, verified, self._commit(flight.plan, verified))
        self._settle(self._done.commit)
        if self._parts.runner.look_ahead or not flight.plan.speculative:
            self._tell()

    def _obey(self, command: Command, now: float) -> None:
        if isinstance(command, Attach):
            self._use(command.drafts)
        elif isinstance(command, Detach):
            if command.generation == self._drafts.generation:
                self._use(NoDrafts(command.fallback))
        else:
            self._parts.desk.obey(command, now)

    def _use(self, drafts: Drafts) -> None:
        """Turns to another attachment; a round in flight waits for drafts of the one before."""
        self.land()
        self._drafts = drafts
        self._parts.runner.set_generation(drafts.generation)

    def _plan(self) -> Plan:
        self._parts.points.visit("plan")
        return self._parts.scheduler.plan(self._parts.clock(), self._drafts.speculating)

    def _draft(self, plan: Plan) -> Drafted:
        self._parts.points.visit("draft")
        runner, drafts = self._parts.runner, self._drafts
        runner.prepare(plan)
        if not plan.speculative:
            runner.overlap(plan)
            return Drafted(False, 0)
        drafts.ask(plan)
        self._tell()
        runner.overlap(plan)
        start = perf_counter()
        arrived = drafts.wait(plan)
        waited_us = round((perf_counter() - start) * 1e6)
        if not arrived and not drafts.speculating:
            self._use(NoDrafts(drafts.fallback))
        return Drafted(arrived, waited_us, "" if arrived else drafts.fallback)

    def _launch(self, plan: Plan) -> _Flight | None:
        """Starts a round; None when it had to be given up."""
        try:
            drafted = self._draft(plan)
            self._parts.points.visit("verify")
            start = perf_counter()
            land = self._parts.runner.launch(plan, drafted.arrived)
        except Exception as error:
            self.land()
            self._give_up(plan, error)
            return None
        return _Flight(plan, drafted, land, drafted.waited_us + (perf_counter() - start) * 1e6)

    def _verified(self, flight: _Flight) -> Verified:
        start = perf_counter()
        times, outcomes = flight.land()
        micros = flight.host_us + (perf_counter() - start) * 1e6
        return Verified(times, outcomes, None if flight.drafted.fallback else micros)

    def _commit(self, plan: Plan, verified: Verified) -> Commit:
        self._parts.points.visit("commit")
        self._failed_rounds = 0
        return self._parts.scheduler.commit(plan, verified.outcomes, self._parts.clock(), verified.micros)

    def _settle(self, commit: Commit) -> None:
        """Takes the round to the books: commands that come before it is told must find what it left."""
        for request in self._parts.emitter.commit(commit):
            self._parts.desk.ended(request)

    def _tell(self) -> None:
        """Emits the round before, if that was not done yet."""
        done, self._done = self._done, None
        if done is None:
            return
        self._parts.points.visit("emit")
        entry = _entry(done.plan, done.drafted, done.verified, done.commit)
        self._parts.recorder.add(entry)
        self._parts.meter.round(entry, done.commit)
        self._deliver(done.plan.number)

    def _give_up(self, plan: Plan, error: Exception) -> None:
        """Ends the requests of a round that failed; a request must never end the engine, a broken engine must go."""
        if not self._parts.runner.sound:
            raise EngineDeadError("the device is lost") from error
        self._tell()
        _LOG.exception("round failed", extra={"round": plan.number})
        self._failed_rounds += 1
        refusal = PacelineError(Code.INTERNAL, Reason.INTERNAL, "the round of this request failed")
        for request in self._parts.scheduler.abandon(plan, self._parts.clock()):
            self._parts.emitter.end(request, End(error=refusal, totals=totals(request)))
            self._parts.desk.ended(request)
        self._parts.meter.failed_round()
        self._deliver(plan.number)
        if self._failed_rounds >= _MOST_FAILED_ROUNDS:
            raise EngineDeadError(f"{self._failed_rounds} rounds failed in a row") from error

    def _deliver(self, number: int) -> None:
        """The one hand-over of a round."""
        self._number = number
        self.load = self._parts.scheduler.load()
        self._parts.meter.levels(self.load, self._drafts.generation)
        self._delivered = self._parts.clock()
        news = RoundNews(number, self.load, self._drafts.speculating, self._parts.emitter.take())
        self.steps += 1
        self._parts.deliver(news)

    def _deliver_quietly(self) -> None:
        """Without a round: refusals and cancellations at once, a heartbeat now and then."""
        updates = self._parts.emitter.take()
        if not updates and self._parts.clock() - self._delivered < _HEARTBEAT_S:
            return
        self.load = self._parts.scheduler.load()
        self._parts.meter.levels(self.load, self._drafts.generation)
        self._delivered = self._parts.clock()
        self._parts.deliver(RoundNews(self._number, self.load, self._drafts.speculating, updates))


def _entry(plan: Plan, drafted: Drafted, verified: Verified, commit: Commit) -> RoundEntry:
    times = verified.times
    decoded = [outcome for outcome in verified.outcomes if outcome.slot in plan.rows]
    return RoundEntry(
        number=plan.number,
        width=plan.width if drafted.arrived else 1,
        requests=len(plan.rows),
        committed=sum(len(progress.tokens) for progress in commit.progress) + commit.discarded,
        drafted=sum(outcome.drafted for outcome in decoded),
        accepted=sum(outcome.accepted for outcome in decoded),
        prefilled=plan.prefill_tokens,
        draft_us=drafted.waited_us,
        verify_us=times.verify_us,
        host_us=times.prepare_us + times.host_us,
        fallback=drafted.fallback,
    )
