"""Host time of a round by its parts, without a model: `python -m tests.bench.engine`.

An engine that looks ahead, with the policy of widths, over a runner whose rounds take no time: each row is told half of
its drafts, as a GPU tells them. Nobody listens; what the event loop makes of a round's news is timed beside it. Times
are those of single calls, so a part that another thread or process holds up counts little.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean
from time import perf_counter
from typing import Any, cast
from unittest.mock import patch

import torch
from prometheus_client import CollectorRegistry
from torch import Tensor

from services.common.kernels.accept import RoundResult
from services.common.metrics.catalogue import TargetMetrics
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.core.commands import Attach, Start
from services.target.core.drafts import Drafts
from services.target.core.messages import RoundNews
from services.target.core.plan import Plan
from services.target.device.outputs import RoundOutput, Step
from services.target.device.state import HostSlot
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
from services.target.scheduling.width.width import adaptive_policy
from services.target.sessions.frames import frame_to_pb
from services.target.sessions.sessions import RoundFrame
from tests.unit.target.core.specs import prompt, request
from tests.unit.target.engine.engine_rig import ScriptedDrafts

BUCKETS, WIDTHS, BLOCK = (1, 2, 4, 8, 16, 32, 64, 128), (1, 4, 8), 16
PROMPT, VOCAB, WARM = 16, 30_000, 100
LONG_US = 20_000.0
"""What the policy is told that a round took: so wide rounds pay."""
KEPT = 0.75
"""The share of a part's calls that count, the quickest ones."""


class Left:
    """What a step of so many rows leaves: tokens, of which each row commits about half."""

    def __init__(self, rows: int, width: int) -> None:
        source = torch.Generator().manual_seed(rows * width)
        self.logits_BWV = torch.empty(0)
        self.result = result = RoundResult.allocate(rows, width)
        result.tokens_BW.random_(2, VOCAB, generator=source)
        result.count_B.random_(1, width + 1, generator=source)
        result.accepted_B.copy_(result.count_B - 1)
        result.drafted_B.fill_(width - 1)


class Told:
    """A runner whose rounds are over when they are launched."""

    look_ahead, sound = 1, True

    def __init__(self, slots: int) -> None:
        self._seats: list[HostSlot | None] = [None] * slots
        self._left: dict[tuple[int, int], Step] = {}

    def use(self, drafts: Drafts) -> None:
        """Nothing depends on them."""

    def prepare(self, plan: Plan) -> None:
        """Seats requests."""
        for slot in plan.released:
            self._seats[slot] = None
        for admission in plan.admissions:
            spec = admission.spec
            self._seats[admission.slot] = HostSlot(admission.epoch, spec, len(spec.token_ids) - 1, 0, 0)

    def overlap(self, plan: Plan) -> None:
        """Nothing waits."""

    def launch(self, plan: Plan, drafted: bool) -> RoundOutput:
        """The output of a round that has run."""
        output = RoundOutput(torch.device("cpu"), 0)
        first = tuple(chunk.slot for chunk in plan.chunks if chunk.last)
        for slots, width in ((first, 1), (plan.rows, plan.width if drafted else 1)):
            if slots:
                step = self._step(len(slots), width)
                rows = [(slot, cast(HostSlot, self._seats[slot])) for slot in slots]
                output.copy(rows, step.result, step.logits_BWV, Tensor.clone)
        return output

    def _step(self, rows: int, width: int) -> Step:
        return self._left.setdefault((rows, width), cast(Step, Left(rows, width)))


class Calls:
    """Seconds of each call of some functions, by name."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, with its time noted."""

        def measured(*args: Any) -> Any:
            start = perf_counter()
            found = call(*args)
            self._seconds[name].append(perf_counter() - start)
            return found

        return measured

    def micros(self) -> dict[str, float]:
        """Means of the quickest calls of each."""
        return {name: 1e6 * fmean(sorted(each)[: int(len(each) * KEPT) or 1]) for name, each in self._seconds.items()}


def engine_parts(rows: int, context: int, deliver: Callable[[RoundNews], object]) -> EngineParts:
    """An engine's parts for so many requests of such contexts; of warm-up all rounds cost the same."""
    pool = BlockPool(rows * (context // BLOCK + 2), BLOCK)
    buckets = BUCKETS[: BUCKETS.index(rows) + 1]
    settings = SchedulerSettings(
        slots=rows, context_limit=context, buckets=buckets, chunk_tokens=PROMPT * rows, max_waiting=rows, look_ahead=1
    )
    costs = {(bucket, width): LONG_US for bucket in buckets for width in WIDTHS}
    policy = adaptive_policy(WIDTHS, buckets, costs)
    scheduler = Scheduler(settings, pool, PrefixCache(pool, b"model", b"drafter"), policy)
    ledger = TokenLedger()
    emitter = Emitter(ledger)
    meter = Meter(TargetMetrics(CollectorRegistry(), "bench", "pair-0"), ledger, pool)
    return EngineParts(
        scheduler=scheduler,
        runner=Told(rows),
        emitter=emitter,
        requests=RequestHandler(scheduler, emitter, KeyStore(), meter),
        meter=meter,
        recorder=FlightRecorder(),
        deliver=deliver,
    )


def measure(rows: int, rounds: int) -> dict[str, float]:
    """Microseconds of a turn with so many requests, of parts of it, and of the message that tells a gateway of it."""
    tokens, news, calls = (WARM + rounds + 4) * WIDTHS[-1], list[RoundNews](), Calls()
    parts = engine_parts(rows, PROMPT + tokens, news.append)
    commit = parts.scheduler.commit
    learned: Any = lambda plan, outcomes, now, micros: commit(plan, outcomes, now, LONG_US)  # noqa: E731
    with patch.object(parts.scheduler, "commit", learned):
        engine = Engine(parts)
        specs = [request(f"request-{row:08x}", prompt(row, PROMPT, VOCAB), tokens) for row in range(rows)]
        engine.turn([Attach(ScriptedDrafts()), *(Start(1, spec) for spec in specs)])
        for _ in range(WARM):
            engine.turn(())
        watch(calls, parts)
        turn, message = calls.timed("turn", engine.turn), calls.timed("message", frame_to_pb)
        for _ in range(rounds):
            news.clear()
            turn(())
            for one in news:
                message(RoundFrame(one.number, one.load, one.speculating, tuple(one.by_session.get(1, ()))))
    return calls.micros()


def watch(calls: Calls, parts: EngineParts) -> None:
    """Has calls of an engine's parts timed from now on."""
    watched: tuple[tuple[object, str, str], ...] = (
        (parts.scheduler, "plan", "plan"),
        (parts.scheduler, "commit", "commit"),
        (parts.emitter, "commit", "emit"),
        (parts.recorder, "add", "record"),
        (parts.meter, "round", "meter"),
    )
    for owner, method, name in watched:
        setattr(owner, method, calls.timed(name, getattr(owner, method)))


def main() -> None:
    """Prints the least of several runs for each number of requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 32, 128], choices=BUCKETS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=400)
    args = parser.parse_args()
    for rows in args.requests:
        runs = [measure(rows, args.rounds) for _ in range(args.runs)]
        least = {name: min(run[name] for run in runs) for name in runs[0]}
        print(f"{rows} requests: " + ", ".join(f"{name} {micros:.1f}" for name, micros in least.items()), flush=True)


if __name__ == "__main__":
    main()
