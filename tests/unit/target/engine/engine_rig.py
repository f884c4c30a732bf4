"""An engine over the fake runner, driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import TargetMetrics
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.core.commands import Cancel, Command, Start
from services.target.core.drafts import NoDrafts
from services.target.core.launching import Launching
from services.target.core.messages import End, RoundNews
from services.target.core.plan import Plan
from services.target.core.request import RequestSpec
from services.target.core.sync_points import SyncPoints
from services.target.engine.emit import Emitter
from services.target.engine.engine import Engine
from services.target.engine.idempotency import KeyStore
from services.target.engine.ledger import TokenLedger
from services.target.engine.meter import Meter
from services.target.engine.parts import EngineParts
from services.target.engine.recorder import FlightRecorder
from services.target.engine.requests import RequestHandler
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.width.policy import FixedWidth
from tests.support.fakes_runner import FakeRunner


class ScriptedDrafts(NoDrafts):
    """Drafts that arrive as a test says; a round in ``late`` ends them like a watchdog would."""

    def __init__(self, generation: int = 1, late: frozenset[int] = frozenset()) -> None:
        super().__init__(fallback="")
        self.generation = generation
        self.speculating = True
        self.asked: list[int] = []
        self._late = late

    def ask(self, plan: Plan) -> None:
        self.asked.append(plan.number)

    def wait(self, plan: Plan) -> bool:
        if plan.number in self._late:
            self.speculating, self.fallback = False, "late"
        return self.speculating


@dataclass
class Rig:
    """An engine, its parts, and everything it delivered."""

    runner: FakeRunner
    engine: Engine
    ledger: TokenLedger
    recorder: FlightRecorder
    scheduler: Scheduler
    metrics: TargetMetrics
    news: list[RoundNews]
    clock: list[float]
    tokens: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    ends: dict[tuple[int, str], list[End]] = field(default_factory=dict)

    def turn(self, *commands: Command) -> bool:
        """One turn of the engine; gathers what it delivered and checks blocks and positions."""
        ran = self.engine.turn(commands)
        self.scheduler.check()
        self._gather()
        return ran

    def run(self, *commands: Command, most: int = 2000) -> None:
        """Turns until nothing is left to do."""
        self.turn(*commands)
        for _ in range(most):
            if not self.turn():
                return
        raise AssertionError(f"still busy after {most} turns")

    def start(self, spec: RequestSpec, session: int = 1) -> Start:
        """A command."""
        return Start(session, spec)

    def cancel(self, name: str, kept: int, reason: str = "cancel", session: int = 1) -> Cancel:
        """A command."""
        return Cancel(session, name, kept, reason)

    def reconciles(self) -> bool:
        """I10 at idle, once gateways can have nothing more to say."""
        self.clock[0] += 10.0
        self.turn()
        return self.ledger.unsettled == 0

    def _gather(self) -> None:
        for news in self.news:
            for session, updates in news.by_session.items():
                for update in updates:
                    key = (session, update.request_id)
                    got = self.tokens.setdefault(key, [])
                    if update.tokens:
                        assert update.position == len(got), "positions are contiguous"
                    got.extend(update.tokens)
                    if update.end is not None:
                        self.ends.setdefault(key, []).append(update.end)
        self.news.clear()


def rig(
    *,
    width: int = 4,
    slots: int = 4,
    blocks: int = 64,
    specification: str = "",
    runner: FakeRunner | None = None,
    max_waiting: int = 64,
    deliver: Callable[[RoundNews], object] | None = None,
    real_time: bool = False,
    launching: Launching | None = None,
) -> Rig:
    """Builds an engine with a pool of ``blocks`` blocks of 4 tokens."""
    runner = runner or FakeRunner()
    pool = BlockPool(blocks, 4)
    settings = SchedulerSettings(
        slots=slots,
        context_limit=128,
        buckets=(1, 2, 4, 8),
        chunk_tokens=16,
        max_waiting=max_waiting,
        look_ahead=runner.look_ahead,
    )
    scheduler = Scheduler(settings, pool, PrefixCache(pool, b"model", b"drafter"), FixedWidth(width))
    ledger, recorder = TokenLedger(), FlightRecorder()
    emitter = Emitter(ledger)
    metrics = TargetMetrics(CollectorRegistry(), "test", "pair-0")
    meter = Meter(metrics, ledger, pool)
    news: list[RoundNews] = []
    clock = [100.0]
    engine = Engine(
        EngineParts(
            scheduler=scheduler,
            runner=runner,
            emitter=emitter,
            requests=RequestHandler(scheduler, emitter, KeyStore(), meter),
            meter=meter,
            recorder=recorder,
            deliver=deliver or news.append,
            launching=launching or Launching(),
            clock=monotonic if real_time else lambda: clock[0],
        )
    )
    SyncPoints(specification).stand_before(
        plan=scheduler.plan, draft=runner.prepare, verify=runner.launch, commit=scheduler.commit, emit=recorder.add
    )
    return Rig(runner, engine, ledger, recorder, scheduler, metrics, news, clock)
