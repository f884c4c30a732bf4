"""The engine: plan, draft, verify, commit, emit, for every running request at once.

It knows rounds and requests, not threads, sockets or tensors. One thread calls it (`thread.py`). Other threads send
commands, which it obeys between rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import attrgetter
from time import perf_counter

from services.common.request.errors import Code, PacelineError, Reason
from services.target.core.commands import Attach, Command, Detach
from services.target.core.drafts import Drafts, NoDrafts
from services.target.core.messages import End, RoundNews, Update
from services.target.core.round import NO_ROUND, Round
from services.target.engine.emit import totals
from services.target.engine.parts import EngineDeadError, EngineParts
from services.target.engine.recorder import RoundEntry

_LOG = logging.getLogger(__name__)
_MOST_FAILED_ROUNDS, _HEARTBEAT_S = 3, 0.5
_DRAFTED = attrgetter("drafted")


class Engine:
    """Runs rounds; other threads may read its counts.

    ``turns`` counts passes of the loop. ``steps`` counts rounds whose requests were told of them: reported or failed.
    """

    def __init__(self, parts: EngineParts) -> None:
        """Starts without a drafter: rounds are plain until one is attached."""
        self._parts = parts
        self._drafts: Drafts = NoDrafts()
        self._failed_rounds = 0
        self._delivered = parts.clock()
        self._number = 0
        self._in_flight = NO_ROUND
        self._unreported: Round | None = None
        self.steps = 0
        self.turns = 0
        self.load = parts.scheduler.load()

    @property
    def pending(self) -> bool:
        """Whether requests are live."""
        return len(self._parts.emitter) > 0

    @property
    def prompts_run(self) -> bool:
        """Whether the round in flight computes prompts alone, so that planning the next one has time."""
        return self._in_flight.plan.prompts_alone

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
        if self._parts.runner.look_ahead:
            self._parts.launching.begin()
        for command in commands:
            self._obey(command, now)
        self._parts.emitter.settle(now)
        if expired := self._parts.scheduler.expire(now):
            self._parts.requests.expired(expired)
        ran = self.step()
        if not ran:
            self._deliver_quietly()
        self.turns += 1
        return ran

    def step(self) -> bool:
        """Runs one round up to its commit, or, with look-ahead, launches one and commits the one before.

        False when there was no work.
        """
        return self._look_ahead() if self._parts.runner.look_ahead else self._one_at_a_time()

    def _one_at_a_time(self) -> bool:
        """Runs one round up to its commit, and reports a plain one.

        A speculative round is reported in the next call: once the drafter was asked again, so that it works meanwhile,
        or before a plan that asks for no drafts. That plan may be empty.
        """
        round_ = self._plan()
        self._draft(round_)
        self._verify(round_)
        self._commit(round_)
        self._emit(round_)
        return not round_.plan.empty

    def _look_ahead(self) -> bool:
        """Launches a round behind the one in flight, then commits and emits the earlier one while the device works.

        What the earlier one committed decides the masks of the launched one.
        """
        busy, round_ = not self._in_flight.over, self._plan()
        self._draft(round_)
        self._verify(round_)
        self._parts.launching.end()
        before, self._in_flight = self._in_flight, round_
        self._commit(before)
        self._emit(before)
        self._rule(round_)
        return busy or not round_.plan.empty

    def land(self) -> None:
        """Commits and emits the round in flight, which only look-ahead leaves between two steps.

        A committed round that is not reported yet stays for the next step.
        """
        round_, self._in_flight = self._in_flight, NO_ROUND
        self._commit(round_)
        self._emit(round_)

    def _obey(self, command: Command, now: float) -> None:
        if isinstance(command, Attach):
            self._use(command.drafts)
        elif isinstance(command, Detach):
            if command.generation == self._drafts.generation:
                self._use(NoDrafts(command.fallback))
        else:
            self._parts.requests.obey(command, now)

    def _use(self, drafts: Drafts) -> None:
        """Changes to another attachment.

        It lands the round in flight first, which may wait for drafts of the old attachment.
        """
        self.land()
        self._drafts = drafts
        self._parts.runner.use(drafts)

    def _plan(self) -> Round:
        plan = self._parts.scheduler.plan(self._parts.clock(), self._drafts.speculating)
        if not plan.speculative:
            self._report()  # no drafter is asked, so there is no draft to report behind
        return Round(plan, over=plan.empty)

    def _draft(self, round_: Round) -> None:
        """Asks for drafts, does the work that needs none, and waits for the drafts."""
        if round_.over:
            return
        runner, plan, drafts = self._parts.runner, round_.plan, self._drafts
        speculative = plan.speculative
        try:
            runner.prepare(plan)
            if speculative:
                drafts.ask(plan)
                self._report()
            runner.overlap(plan)
            if speculative:
                self._wait(round_, drafts)
        except Exception as error:
            self._give_up(round_, error)

    def _wait(self, round_: Round, drafts: Drafts) -> None:
        """Waits for the drafts; drops the attachment of a drafter that is late or gone."""
        start = perf_counter()
        round_.drafted = drafts.wait(round_.plan)
        round_.draft_us = round((perf_counter() - start) * 1e6)
        if round_.drafted:
            return
        round_.fallback = drafts.fallback
        if not drafts.speculating:
            self._use(NoDrafts(drafts.fallback))

    def _verify(self, round_: Round) -> None:
        """Launches the one forward of the round."""
        if round_.over:
            return
        try:
            start = perf_counter()
            round_.output = self._parts.runner.launch(round_.plan, round_.drafted)
            round_.engine_us = round_.draft_us + (perf_counter() - start) * 1e6
        except Exception as error:
            self._give_up(round_, error)

    def _rule(self, round_: Round) -> None:
        """Makes the masks of a round that was launched ahead, if it waits for any."""
        if round_.over:
            return
        try:
            round_.output.rule()
        except Exception as error:
            self._give_up(round_, error)

    def _commit(self, round_: Round) -> None:
        """Waits for the round's outcomes and commits them.

        From then on commands see requests as the round left them, also before it is reported.
        """
        if round_.over:
            return
        try:
            start = perf_counter()
            round_.outcomes = round_.output.land()
            round_.engine_us += (perf_counter() - start) * 1e6
            if round_.drafted and not any(map(_DRAFTED, round_.outcomes)):
                round_.fallback = self._drafts.fallback  # empty unless the device has waited in vain
        except Exception as error:
            self._give_up(round_, error)
        else:
            self._settle(round_)

    def _settle(self, round_: Round) -> None:
        """Gives the outcomes to the scheduler, and what it made of them to the emitter."""
        self._failed_rounds = 0
        for scores in round_.output.scores:
            self._parts.emitter.scored(self._parts.scheduler.at(scores.slot, scores.epoch), scores)
        usual_us = None if round_.fallback else round_.engine_us
        round_.commit = self._parts.scheduler.commit(round_.plan, round_.outcomes, self._parts.clock(), usual_us)
        for request in self._parts.emitter.commit(round_.commit):
            self._parts.requests.ended(request, in_round=True)

    def _emit(self, round_: Round) -> None:
        """Reports the round now; without look-ahead a speculative round is kept until the next drafts are asked for."""
        if round_.over:
            return
        self._unreported = round_
        if self._parts.runner.look_ahead or not round_.plan.speculative:
            self._report()

    def _report(self) -> None:
        """Records, counts and delivers the round that was committed last, unless it was reported."""
        round_, self._unreported = self._unreported, None
        if round_ is None:
            return
        entry = RoundEntry.of(round_)
        self._parts.recorder.add(entry)
        self._parts.meter.round(entry, round_.commit)
        self._deliver(entry.number)

    def _give_up(self, round_: Round, error: Exception) -> None:
        """Ends the requests of a round that failed with INTERNAL, which a gateway may try once on another target.

        A round ahead of it is landed first. A round behind it goes on: what it brings ended requests is discarded, and
        its other requests are untouched. The engine ends only when the device is lost or rounds fail in a row.
        """
        round_.over = True
        if self._in_flight.plan.number < round_.plan.number:
            self.land()
        if not self._parts.runner.sound:
            raise EngineDeadError("the device is lost") from error
        self._report()
        self._abandon(round_, error)

    def _abandon(self, round_: Round, error: Exception) -> None:
        self._failed_rounds += 1
        refusal = PacelineError(Code.INTERNAL, Reason.INTERNAL, "the round of this request failed")
        abandoned = self._parts.scheduler.abandon(round_.plan, self._parts.clock())
        requests = [request.spec.request_id for request in abandoned]
        _LOG.error("round failed", exc_info=error, extra={"round": round_.plan.number, "requests": requests})
        for request in abandoned:
            told = {"request_id": request.spec.request_id, "round": round_.plan.number}
            _LOG.error("the round of a request failed", extra=told)
            self._parts.emitter.end(request, End(error=refusal, totals=totals(request)))
            self._parts.requests.ended(request)
        self._parts.meter.failed_round()
        self._deliver(round_.plan.number)
        if self._failed_rounds >= _MOST_FAILED_ROUNDS:
            raise EngineDeadError(f"{self._failed_rounds} rounds failed in a row") from error

    def _deliver(self, number: int) -> None:
        """Counts a round and sends the gathered updates to the sessions."""
        self._number = number
        self.steps += 1
        self._send(self._parts.emitter.take())

    def _deliver_quietly(self) -> None:
        """Sends updates that no round brought, such as refusals, at once, and a heartbeat after a silence."""
        updates = self._parts.emitter.take()
        if updates or self._parts.clock() - self._delivered >= _HEARTBEAT_S:
            self._send(updates)

    def _send(self, updates: dict[int, list[Update]]) -> None:
        self.load = self._parts.scheduler.load()
        self._parts.meter.levels(self.load, self._drafts.generation)
        self._delivered = self._parts.clock()
        self._parts.deliver(RoundNews(self._number, self.load, self._drafts.speculating, updates))
