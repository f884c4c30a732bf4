"""A target without a model: a real gRPC TargetService whose text is a function of seed, prompt and position.

Every FakeTarget continues a request with the same tokens, as real targets do by invariant I1.
"""

import asyncio
import math
import time
from typing import Any

import grpc

from services.common.pb.paceline.v1 import target_pb2, target_pb2_grpc, types_pb2
from services.common.request.error_convert import to_pb
from services.common.request.errors import PacelineError
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.callers import Callers
from services.common.serving.channel import SERVER_OPTIONS
from services.common.serving.interceptors import ErrorInterceptor
from services.common.serving.secret import Secret
from services.gateway.targets.attempt import DELIVERED
from services.target.engine.idempotency import Claim, KeyStore
from services.target.sessions.tally import Bounds, Granted, Tally, Used
from tests.support.fakes_target_request import FakeRequest
from tests.support.ports import free_port

HEARTBEAT_S = 0.5


class FakeTarget(target_pb2_grpc.TargetServiceServicer):
    """Commits 1 to `burst` tokens per request and round, a round every `pace_s` seconds.

    With a script every output is its tokens, and what it is otherwise after them.
    """

    def __init__(
        self, pair_id: str = "pair-0", pace_s: float = 0.002, vocab_size: int = 512, slots: int = 8, burst: int = 4,
        eos: tuple[int, ...] = (), model: str = "fake", context_limit: int = 4096, revision: str = "r1", port: int = 0,
        keys: KeyStore | None = None, script: tuple[int, ...] = (), numerics: str = "",
        secret: Secret | None = None, version: int = PROTOCOL_VERSION,
    ) -> None:  # fmt: skip
        self.pair_id, self.pace_s, self.slots, self.burst, self.port = pair_id, pace_s, slots, burst, port
        self.info = types_pb2.ModelInfo(
            name=model, revision=revision, context_limit=context_limit, max_draft=burst - 1, vocab_size=vocab_size,
            eos_token_ids=eos, dtype="float32", proposer="none",
        )  # fmt: skip
        self.numerics = target_pb2.Numerics(digest=numerics) if numerics else None
        self.keys = keys
        self.callers = Callers(secret=secret) if secret is not None else None
        self.version = version
        self.script = script
        self.asks: list[target_pb2.Ask] = []
        self.kept: list[target_pb2.Ask] = []
        self.uses: list[target_pb2.Use] = []
        self.tally = Tally()
        self.secrets: set[str] = set()
        self.starts: list[target_pb2.Start] = []
        self.cancels: list[target_pb2.Cancel] = []
        self.settled: list[target_pb2.Cancel] = []
        self.cancel_rounds: list[int] = []
        self.refuse: PacelineError | None = None
        self.rounds = 0
        self.committed = 0
        self.committed_of: dict[str, int] = {}
        self.lag_s = 0.0
        self.past: list[target_pb2.RoundRecord] = []
        self.described = 0
        self.speculating = True
        self.waiting, self.free_blocks, self.total_blocks = 0, 0, 0
        self.held_at = math.inf
        self._running = asyncio.Event()
        self._running.set()
        self._draining = False
        self._calls: set[FakeSession] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> str:
        """Serves; returns host:port."""
        self._draining = False
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=list(SERVER_OPTIONS))
        target_pb2_grpc.add_TargetServiceServicer_to_server(self, self._server)
        self.port = self.port or free_port()  # one that it finds free again after it died
        where = f"127.0.0.1:{self.port}"
        if credentials is None:
            self._server.add_insecure_port(where)
        else:
            self._server.add_secure_port(where, credentials)
        await self._server.start()
        return where

    @property
    def active(self) -> int:
        """Requests that run."""
        return sum(len(session.requests) for session in self._calls)

    async def die(self) -> None:
        """Breaks every connection at once, as a killed process does."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)

    stop = die

    def drain(self) -> None:
        """Announces the end and moves every request away."""
        self._draining = True

    def stall(self) -> None:
        """Goes silent with its connections open."""
        self._running.clear()

    def resume(self) -> None:
        """Ends a stall."""
        self._running.set()

    def hold(self, after: float = 0) -> None:
        """Keeps each request that has so many tokens of here, while rounds go on: it runs, however slow a test is."""
        self.held_at = after

    def go_on(self) -> None:
        """Holds no request any more."""
        self.held_at = math.inf

    def slow(self, seconds: float) -> None:
        """Makes every round this much longer."""
        self.lag_s = seconds

    async def Describe(self, request: Any, context: Any) -> target_pb2.TargetServiceDescribeResponse:
        """Says as little as it knows, and the rounds that a test gave it."""
        self.described += 1
        return target_pb2.TargetServiceDescribeResponse(
            protocol_version=1, pair_id=self.pair_id, model=self.info, rounds=self.past
        )

    async def Session(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        """Serves one gateway."""
        hello = await context.read()
        self.secrets.add(hello.hello.secret)
        if self.callers is not None:
            self.callers.check(context, hello.hello.secret)
        welcome = target_pb2.Welcome(
            protocol_version=self.version,
            pair_id=self.pair_id,
            model=self.info,
            load=self._load(),
            features=["tally"] if self.keys is None else ["tally", "ask"],
            numerics=self.numerics,
        )
        await context.write(target_pb2.SessionResponse(welcome=welcome))
        session = FakeSession(self)
        self._calls.add(session)
        reading = asyncio.create_task(session.read(context))
        try:
            await self._rounds(session, context)
        finally:
            reading.cancel()
            self._calls.discard(session)
            self.tally.leave(id(session))

    def _load(self) -> target_pb2.Load:
        return target_pb2.Load(
            running=self.active, waiting=self.waiting, slots=self.slots, speculating=self.speculating,
            free_blocks=self.free_blocks, total_blocks=self.total_blocks,
        )  # fmt: skip

    async def _rounds(self, session: "FakeSession", context: Any) -> None:
        quiet_s, told = HEARTBEAT_S, False
        while True:
            await self._running.wait()
            if self._draining and not told:
                told = True
                await context.write(target_pb2.SessionResponse(go_away=target_pb2.GoAway()))
            standings, session.standings = session.standings, []
            for standing in standings:
                await context.write(target_pb2.SessionResponse(standing=standing))
            updates = session.round(self._draining)
            self.rounds += 1
            if updates or quiet_s >= HEARTBEAT_S:
                quiet_s = 0.0
                frame = target_pb2.Round(number=self.rounds, updates=updates, load=self._load())
                await context.write(target_pb2.SessionResponse(round=frame))
            pause_s = max(self.pace_s, 0.0) + self.lag_s
            quiet_s += max(pause_s, 0.0005)
            await asyncio.sleep(pause_s)


class FakeSession:
    """Requests of one gateway."""

    def __init__(self, target: FakeTarget) -> None:
        self.requests: dict[str, FakeRequest] = {}
        self._target = target
        self._answers: list[target_pb2.RequestUpdate] = []
        self.standings: list[target_pb2.Standing] = []

    async def read(self, context: Any) -> None:
        """Takes frames until the stream ends."""
        while (frame := await context.read()) is not grpc.aio.EOF:
            if frame.HasField("start"):
                self._start(frame.start)
            elif frame.HasField("cancel"):
                for one in (frame.cancel, *frame.cancel.others):
                    self._cancel(one)
            elif frame.HasField("ask"):
                self._ask(frame.ask)
            elif frame.HasField("use"):
                self.standings.append(self._use(frame.use))

    def round(self, draining: bool) -> list[target_pb2.RequestUpdate]:
        """What one round does for every request."""
        updates, self._answers = self._answers, []
        for name, request in self._steps(draining):
            update = request.moved() if draining else request.step(self._target.burst)
            self._target.committed += len(update.token_ids)
            self._target.committed_of[name] += len(update.token_ids)
            updates.append(update)
            if update.HasField("end"):
                self._leave(name, moved=draining)
        return updates

    def _steps(self, draining: bool) -> list[tuple[str, FakeRequest]]:
        """Requests that have a slot and are not held; a drain moves all."""
        target, most = self._target, math.inf if draining else self._target.held_at
        seated = [*self.requests.items()][: target.slots]
        return [(name, request) for name, request in seated if target.committed_of[name] < most]

    def _start(self, start: target_pb2.Start) -> None:
        self._target.starts.append(start)
        if self._target.refuse is not None:
            self._refuse(start.request_id, self._target.refuse)
            return
        if self._target.keys is not None:
            try:
                self._target.keys.claim(_claim(start), time.monotonic())
            except PacelineError as error:
                self._refuse(start.request_id, error)
                return
        self._target.committed_of[start.request_id] = 0
        self.requests[start.request_id] = FakeRequest(start, self._target.info, self._target.script)

    def _ask(self, ask: target_pb2.Ask) -> None:
        assert self._target.keys is not None, "a target that did not offer to answer was asked"
        claim, now = Claim(ask.tenant, ask.idempotency_key, ask.owner, 0), time.monotonic()
        if ask.ended:
            self._target.kept.append(ask)
            self._target.keys.note(claim, now)
            return
        self._target.asks.append(ask)
        try:
            self._target.keys.check(claim, now)
        except PacelineError as error:
            self._refuse(ask.request_id, error)
        else:
            end = target_pb2.RequestEnd(moved=True)
            self._answers.append(target_pb2.RequestUpdate(request_id=ask.request_id, end=end))

    def _use(self, use: target_pb2.Use) -> target_pb2.Standing:
        target = self._target
        target.uses.append(use)
        if use.claims:
            most = Bounds(use.most_requests, use.most_tokens)
            claimed = Granted(use.number, use.claimed_requests or 1, use.claimed_tokens)
            found = target.tally.claim(id(self), use.tenant, claimed, most)
        else:
            heard = use.heard if use.HasField("heard") else None
            found = target.tally.note(id(self), use.tenant, Used(use.requests, use.tokens), heard)
        return target_pb2.Standing(
            number=use.number, granted=found.granted, requests=found.requests, tokens=found.tokens,
            gateways=len(target._calls),
        )  # fmt: skip

    def _refuse(self, name: str, error: PacelineError) -> None:
        end = target_pb2.RequestEnd(error=to_pb(error))
        self._answers.append(target_pb2.RequestUpdate(request_id=name, end=end))

    def _leave(self, name: str, moved: bool = False) -> None:
        start = self.requests.pop(name).start
        if self._target.keys is not None and not moved:
            self._target.keys.release(_claim(start), time.monotonic())

    def _cancel(self, cancel: target_pb2.Cancel) -> None:
        (self._target.settled if cancel.reason == DELIVERED else self._target.cancels).append(cancel)
        self._target.cancel_rounds.append(self._target.rounds)
        request = self.requests.get(cancel.request_id)
        if request is not None:
            self._leave(cancel.request_id)
            self._answers.append(request.ended(types_pb2.FINISH_REASON_CANCELLED))


def _claim(start: target_pb2.Start) -> Claim:
    """The name of an attempt differs from all others of this target."""
    return Claim(start.tenant, start.idempotency_key, start.owner, hash(start.request_id), start.resumed)
