"""One open Session stream with a target: writes frames, reads rounds, hands each request its own news."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import grpc

from services.common.pb.paceline.v1 import target_pb2
from services.common.request.errors import PacelineError
from services.gateway.routing.crowd import Candidate
from services.gateway.routing.routed_request import RoutedRequest, needs
from services.gateway.targets import frames, outgoing
from services.gateway.targets.attempt import DELIVERED, Attempt, Outbox
from services.gateway.targets.away import SessionLostError, cause
from services.gateway.targets.heartbeat import Heartbeat
from services.gateway.targets.messages import Load, Lost, Model, Standing, Use
from services.gateway.targets.rounds import Proposer, Rounds

DELIVERED_S = 0.05
"""Longest time that the word on a delivered answer waits for others."""

Call = grpc.aio.StreamStreamCall[target_pb2.SessionRequest, target_pb2.SessionResponse]


class Session:
    """A session after its Welcome; `pair_id` and `model` are what the target stated."""

    def __init__(
        self,
        call: Call,
        welcome: target_pb2.Welcome,
        on_change: Callable[[], None],
        heartbeat: Heartbeat,
        rounds: Rounds,
        proposer: Proposer,
    ) -> None:
        """Made by `open_session`."""
        self.pair_id = welcome.pair_id
        self.model: Model = frames.model(welcome)
        self.load = frames.load(welcome.load) if welcome.HasField("load") else Load()
        self.features = frozenset(welcome.features)
        self.candidate = Candidate(
            self.pair_id,
            numerics=self.model.arithmetic.numerics,
            revision=self.model.revision,
            model=self.model.name,
        )
        self._place(self.load)
        self.draining = False
        self.lost = False
        self._call = call
        self._on_change = on_change
        self._names = 0
        self._attempts: dict[str, Attempt] = {}
        self._stated: dict[int, asyncio.Future[Standing | None]] = {}
        self._asked: dict[str, asyncio.Future[PacelineError | None]] = {}
        self._outgoing: asyncio.Queue[target_pb2.SessionRequest] = asyncio.Queue()
        self._delivered: list[target_pb2.SessionRequest] = []
        self._heartbeat = heartbeat
        heartbeat.beat(quiet=True)
        self._up_s = welcome.up.seconds
        self._opened = time.monotonic()
        self.rounds = rounds
        self._proposer = proposer
        self._attached = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Requests are running over this session."""
        return bool(self._attempts)

    @property
    def open_s(self) -> float:
        """How long the session has stood."""
        return time.monotonic() - self._opened

    @property
    def up_s(self) -> float:
        """How long the target has taken requests, as it says itself."""
        return self._up_s + self.open_s

    async def run(self) -> str:
        """Reads and writes until the session is lost; then every request on it learns that. Returns the cause.

        The cause is returned, not raised: an error's traceback and the caller's task would refer to each other, and
        keep the connection until a garbage collection.
        """
        tasks = [
            asyncio.create_task(work) for work in (self._read(), self._write(), self._learn(), self._heartbeat.watch())
        ]
        why = "closed by the gateway"
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            why = cause(next(iter(done)).exception())
        finally:
            for task in tasks:
                task.cancel()
            self._call.cancel()
            self._lose(why)
        return why

    def start(self, job: RoutedRequest, committed: list[int], timeout_s: float, outbox: Outbox) -> Attempt:
        """Sends a request to a target that has the features it needs: others would not hear of what it asks."""
        attempt = self._attempt(job, len(committed), outbox)
        if lacking := needs(job) - self.features:
            del self._attempts[attempt.name]
            attempt.deliver(0, frames.unable(len(committed), lacking))
            return attempt
        self.candidate.dispatched += 1
        self._send(outgoing.start(attempt.name, job, committed, timeout_s))
        return attempt

    def ask(self, job: RoutedRequest) -> asyncio.Future[PacelineError | None]:
        """Asks whether another generation holds the job's key here; the answer is the error when one does.

        A target that is lost counts as not holding it.
        """
        name = self._name(job)
        answer: asyncio.Future[PacelineError | None] = asyncio.get_running_loop().create_future()
        self._asked[name] = answer
        self._send(outgoing.ask(name, job))
        return answer

    def keep(self, job: RoutedRequest) -> None:
        """Has the key kept of a request that has ended on another target."""
        self._outgoing.put_nowait(outgoing.ask(self._name(job), job, ended=True))

    def state(self, stated: Use) -> asyncio.Future[Standing | None]:
        """States what a tenant has at this gateway; the answer is None when the session is lost before it comes."""
        answer: asyncio.Future[Standing | None] = asyncio.get_running_loop().create_future()
        self._stated[stated.number] = answer
        self._send(outgoing.use(stated))
        return answer

    def _send(self, frame: target_pb2.SessionRequest) -> None:
        """Sends what the target answers."""
        self._heartbeat.expect()
        self._outgoing.put_nowait(frame)

    def _name(self, job: RoutedRequest) -> str:
        """Names are never used twice in a session, so late news cannot reach another request."""
        self._names += 1
        return f"{job.request_id}/{self._names}"

    def _attempt(self, job: RoutedRequest, committed: int, outbox: Outbox) -> Attempt:
        attempt = Attempt(self._name(job), committed, outbox, self._cancel)
        self._attempts[attempt.name] = attempt
        return attempt

    def _cancel(self, attempt: Attempt, tokens_kept: int, reason: str) -> None:
        frame = outgoing.cancel(attempt.name, tokens_kept, reason)
        if reason != DELIVERED:
            self._outgoing.put_nowait(frame)
            return
        if not self._delivered:
            asyncio.get_running_loop().call_later(DELIVERED_S, self._tell_delivered)
        self._delivered.append(frame)

    def _tell_delivered(self) -> None:
        """Nothing runs any more that waits for it, so many requests share a frame."""
        told, self._delivered = self._delivered, []
        self._outgoing.put_nowait(outgoing.cancels(told))

    async def _write(self) -> None:
        while True:
            await self._call.write(await self._outgoing.get())

    async def _read(self) -> None:
        while True:
            response = await self._call.read()
            if not isinstance(response, target_pb2.SessionResponse):
                raise SessionLostError("the target ended the session")
            self._take(response)
            self._heartbeat.beat(quiet=not (self._attempts or self._asked or self._stated))

    def _take(self, response: target_pb2.SessionResponse) -> None:
        if response.HasField("round"):
            self._round(response.round)
        elif response.HasField("standing"):
            answer = self._stated.pop(response.standing.number, None)
            if answer is not None and not answer.done():
                answer.set_result(frames.standing(response.standing))
        elif response.HasField("go_away"):
            self.draining = True
            self._on_change()

    def _round(self, message: target_pb2.Round) -> None:
        if message.HasField("load"):
            plain, self.load = not self.load.speculating, frames.load(message.load)
            self._place(self.load)
            if plain and self.load.speculating:
                self._attached.set()
        for update in message.updates:
            attempt = self._attempts.get(update.request_id)
            if attempt is None:
                self._answered(update)
            elif attempt.deliver(update.epoch, frames.update(update)):
                del self._attempts[update.request_id]

    def _answered(self, update: target_pb2.RequestUpdate) -> None:
        """A question has its answer; news of anything else are late."""
        answer = self._asked.pop(update.request_id, None)
        if answer is not None and not answer.done():
            answer.set_result(frames.held(update))

    def _place(self, load: Load) -> None:
        """Notes what the target reports where the router reads it."""
        one = self.candidate
        one.running, one.waiting, one.slots = load.running, load.waiting, load.slots
        one.queued_tokens, one.speculating, one.dispatched = load.queued_tokens, load.speculating, 0

    async def _learn(self) -> None:
        """Asks who drafts when a drafter was attached: the Welcome may be older."""
        while True:
            await self._attached.wait()
            self._attached.clear()
            self.model = replace(self.model, proposer=await self._proposer() or self.model.proposer)
            self._on_change()

    def _lose(self, why: str) -> None:
        self.lost = True
        attempts, self._attempts = self._attempts, {}
        for attempt in attempts.values():
            attempt.lose(Lost(why))
        for stated in self._stated.values():
            if not stated.done():
                stated.set_result(None)
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)
        self._stated.clear()
        self._asked.clear()
