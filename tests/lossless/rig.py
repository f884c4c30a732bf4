"""A whole target in one process: scheduler, runner and a proposer over one arena, without sockets or threads."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

import torch

from services.common.model import DraftContext, NoContext, Target, load_target
from services.common.model.drafters.context import open_context
from services.common.pair import attach
from services.common.pair.arena import Arena, MemfdArena
from services.common.pair.handoff import HandoffMode
from services.common.request.sampling import FinishReason
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.cache.windows import WindowPlaces
from services.target.core.drafts import NoDrafts
from services.target.core.plan import Commit, Plan, PositionLogprobs, PromptScores
from services.target.core.request import RequestSpec
from services.target.core.round import RoundOutput
from services.target.core.width import Ragged, Tree, Width
from services.target.device.publish import arena_spec
from services.target.device.runner import Runner
from services.target.device.shapes import PackShape, RunnerSettings, WholePack
from services.target.drafting.handoff.build import build_handoff
from services.target.drafting.handoff.protocol import Handoff
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import PAUSE_S, SchedulerSettings
from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from tests.lossless.loaded import loaded

GENERATION = 7


class DirectDrafts(NoDrafts):
    """Drafts that a proposer writes without being asked by a message."""

    generation = GENERATION


class Proposer(Protocol):
    """Fills the mailbox for the rows of a plan; False means that it was late."""

    def draft(self, plan: Plan) -> bool:
        """Writes drafts and tags into the arena."""
        ...


class ProposerFactory(Protocol):
    """Makes a proposer once the arena exists."""

    def __call__(self, rig: "Rig") -> Proposer:
        """Builds the proposer on the rig's arena."""
        ...


BLOCK = 16


@dataclass(frozen=True, slots=True)
class RigSettings:
    """Shape of the rig; `width` is W of every round, 1 is plain. Steps are captured for that width and for 1.

    With `look_ahead` a round is launched before so many others are read, as on a GPU; on a CPU that asks for requests
    without noise, which the host makes by the lengths it has read. `drafter_memory` (shared or none) asks for
    hand-off by wire. With `nodes` drafts are trees, and with `between` every third round has chains of as many rows.
    With `ragged` rounds have so many rows together where they fit, in pieces of `grain`, and each sequence any number
    of pieces.
    Packs of prompts have segments of 16 rows, of which a model with recurrent states gives each prompt one. With
    `mixed` rows of a burst never pause, and are computed with its prompts. With `coded` K/V are of eight bits;
    `activations` are those of products. A `seeded` arena tells the seeds of noise, as on a GPU, and not the noise.
    """

    width: int = 1
    slots: int = 4
    context_limit: int = 256
    blocks: int = 96
    buckets: tuple[int, ...] = (1, 2, 4)
    pack_tokens: int = 64
    mixed: bool = False
    dtype: torch.dtype = torch.float32
    prefix_cache: bool = True
    snapshots: int = 8
    preemption: bool = False
    eos_ids: tuple[int, ...] = ()
    look_ahead: int = 0
    drafter_memory: str = ""
    coded: bool = False
    activations: str = "auto"
    synthetic_acceptance: tuple[float, ...] = ()
    synthetic_siblings: tuple[float, ...] = ()
    nodes: bool = False
    between: int = 0
    ragged: int = 0
    grain: int = 1
    seeded: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        """Every width of the rig's chains."""
        width = self.between if self.nodes else self.width
        return (1, width) if width > 1 else (1,)

    @property
    def policy(self) -> WidthPolicy:
        """What chooses widths."""
        if self.ragged:
            return AnyTakes(Ragged(self.width, self.ragged, self.grain))
        if not self.nodes:
            return FixedWidth(self.width)
        return InTurn(self.width, self.between) if self.between else FixedWidth(Tree(self.width))


class AnyTakes(FixedWidth):
    """Rounds whose requests have any whole pieces, drawn anew each time; chains where as many rows fit all or none."""

    def __init__(self, ragged: Ragged, seed: int = 65) -> None:
        super().__init__(int(ragged))
        self.widths = (*self.widths, ragged)
        self._ragged, self._random = ragged, random.Random(seed)

    def choose(self, bucket: int, rows: int, context: int = 0) -> Width:
        """Rounds of any lengths, or 1."""
        width = super().choose(bucket, rows, context)
        return self._ragged if width != 1 and self._ragged.fits(rows) else width

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """Whole pieces; some are left as padding."""
        most, left = int(width) // width.grain, width.pieces - len(uids)
        counts = [1] * len(uids)
        for place in self._random.sample(range(len(uids)), len(uids)):
            more = self._random.randint(0, min(most - 1, left))
            counts[place], left = 1 + more, left - more
        return tuple(width.grain * count for count in counts)


class InTurn(FixedWidth):
    """Two rounds of trees, then one of chains."""

    def __init__(self, nodes: int, chain: int) -> None:
        super().__init__(Tree(nodes))
        self._chain, self._count = chain, 0

    def choose(self, bucket: int, rows: int, context: int = 0) -> Width:
        """The tree's width, the chain's, or 1."""
        self._count += 1
        width = super().choose(bucket, rows, context)
        return self._chain if width != 1 and self._count % 3 == 0 else width


@dataclass(slots=True)
class Done:
    """What one request produced; `cached` is the longest prefix that it found when it was admitted."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)
    scores: dict[int, tuple[int, PositionLogprobs]] = field(default_factory=dict)
    end: FinishReason | None = None
    rounds: int = 0
    accepted: int = 0
    drafted: int = 0
    cached: int = 0


class Rig:
    """Runs requests to their end; `done` is filled by request id as rounds commit.

    `prefilled` counts prompt tokens, `admitted` how often a request got a slot.
    """

    def __init__(
        self, target: Path, drafter: Path | None, settings: RigSettings, propose: ProposerFactory | None = None
    ) -> None:
        self.settings = settings
        self.model: Target = loaded(load_target, target, dtype=settings.dtype, activations=settings.activations)
        self.context: DraftContext = NoContext() if drafter is None else loaded(opened, drafter, target=self.model)
        self.shapes = RunnerSettings(
            slots=settings.slots,
            blocks=settings.blocks,
            snapshots=settings.snapshots,
            context_limit=settings.context_limit,
            widths=settings.widths,
            buckets=settings.buckets,
            packs=_packs(settings.pack_tokens, recurrent=self.model.spec.delta is not None),
            mixed=_mixed(settings),
            eos_ids=settings.eos_ids,
            synthetic_acceptance=settings.synthetic_acceptance,
            synthetic_siblings=settings.synthetic_siblings,
            trees=(settings.width,) if settings.nodes else (),
            coded=settings.coded,
            block_size=BLOCK,
            near=self._near(),
            ragged=(Ragged(settings.width, settings.ragged, settings.grain),) if settings.ragged else (),
        )
        self.arena: Arena = MemfdArena.create(
            arena_spec(self.model.spec, self.context, self.shapes, settings.dtype, in_memory=not settings.seeded),
            attach.DRAFTER_WRITES,
        )
        self.handoff = _handoff(settings, self.arena)
        self.runner = Runner(self.model, self.context, self.arena, self.shapes, self.handoff)
        self.runner.warm_up()
        self.runner.use(DirectDrafts())
        self.arena.tensor(attach.TAG).fill_(-1)
        pool = BlockPool(settings.blocks, self.shapes.block_size, self._windows())
        grid = self.runner.pool.states.grid
        self.snapshots = SnapshotPool(settings.snapshots, grid) if grid else None
        self.cache = PrefixCache(pool, b"model", b"drafter", self.snapshots) if settings.prefix_cache else None
        self.scheduler = _scheduler(settings, self.shapes, pool, self.cache)
        self.proposer = None if propose is None else propose(self)
        self.done: dict[str, Done] = {}
        self.request_of_slot: dict[int, str] = {}
        self.rounds = self.prefilled = self.admitted = 0
        self._flights: deque[tuple[Plan, RoundOutput]] = deque()

    def _near(self) -> int:
        """Blocks of layers with a window: for each slot as many as it may hold, and some of requests that have left."""
        window = max(own.window for own in self.model.spec.groups)
        if not window or self.settings.nodes:
            return 0
        size = BLOCK
        return self.settings.slots * WindowPlaces.needed(window, self._ahead, size) + -(-window // size)

    @property
    def _ahead(self) -> int:
        return max(self.settings.pack_tokens, (self.settings.look_ahead + 1) * self.settings.width)

    def _windows(self) -> WindowPlaces | None:
        shapes, window = self.shapes, max(own.window for own in self.model.spec.groups)
        return WindowPlaces(shapes.near, shapes.blocks, shapes.block_size, window, self._ahead) if shapes.near else None

    def __enter__(self) -> "Rig":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.arena.close()

    def submit(self, spec: RequestSpec) -> None:
        """Queues a request."""
        self.scheduler.add(spec, None, 0.0)
        self.done[spec.request_id] = Done()

    def step(self) -> bool:
        """Launches a round, and reads the oldest one when enough are in flight; False when there was nothing to do."""
        plan = self.scheduler.plan(0.0, speculate=self.proposer is not None)
        if not plan.empty:
            self._flights.append((plan, self._launch(plan)))
        if not self._flights:
            return False
        if plan.empty or len(self._flights) > self.settings.look_ahead:
            self._land(*self._flights.popleft())
        if len(self._flights) == 1:
            self._flights[0][1].rule()
        return True

    def run(self, specs: Sequence[RequestSpec]) -> list[Done]:
        """Submits all and runs until none is left; returns what each produced, in order."""
        for spec in specs:
            self.submit(spec)
        while self.step():
            pass
        return [self.done[spec.request_id] for spec in specs]

    def _launch(self, plan: Plan) -> RoundOutput:
        self.runner.prepare(plan)
        self.prefilled += plan.prefill_tokens
        self.admitted += len(plan.admissions)
        for admission in plan.admissions:
            self.request_of_slot[admission.slot] = admission.spec.request_id
        drafted = self.proposer.draft(plan) if self.proposer is not None and plan.speculative else False
        return self.runner.launch(plan, drafted)

    def _land(self, plan: Plan, output: RoundOutput) -> None:
        outcomes = output.land()
        for scores in output.scores:
            self._note_scores(scores)
        commit = self.scheduler.commit(plan, outcomes, 0.0)
        # A row that had ended in the round before commits nothing, and one whose masks came too late.
        kept = [(one.tokens, one.end) for one in commit.progress if one.tokens or one.end]
        told = [(one.tokens, one.end) for one in outcomes if one.tokens or one.end]
        assert kept == told, "device and host end differently"
        self._note(commit)
        self.scheduler.check()
        self.rounds += 1

    def _note_scores(self, scores: PromptScores) -> None:
        request = self.scheduler.at(scores.slot, scores.epoch)
        if request is not None:
            places = enumerate(zip(scores.tokens, scores.positions, strict=True), start=scores.start)
            self.done[request.spec.request_id].scores.update(places)

    def _note(self, commit: Commit) -> None:
        for progress in commit.progress:
            done = self.done[progress.request.spec.request_id]
            done.tokens += progress.tokens
            done.logprobs += progress.logprobs or ()
            done.end = progress.end
            done.rounds += progress.width > 0
            done.accepted += progress.accepted
            done.drafted += progress.drafted
            done.cached = max(done.cached, progress.request.cached_tokens)


def opened(drafter: Path, target: Target) -> DraftContext:
    """A drafter's context, which rigs of a model share too."""
    return open_context(drafter, target)


def _packs(most: int, recurrent: bool) -> tuple[PackShape, ...]:
    """Short ones, so that short prompts take several segments."""
    if recurrent:
        return PackShape(1, 16), PackShape(1, most), WholePack(4, 16)
    return tuple(PackShape(count, 16) for count in range(1, most // 16 + 1))


def _mixed(settings: RigSettings) -> PackShape | None:
    return PackShape(settings.pack_tokens // 16 - 1, 16, settings.buckets[-1]) if settings.mixed else None


def _handoff(settings: RigSettings, arena: Arena) -> Handoff:
    mode = HandoffMode.WIRE if settings.drafter_memory else HandoffMode.HOST
    return build_handoff(mode, arena, torch.device("cpu"), 1.0, settings.drafter_memory != "none")


def _scheduler(settings: RigSettings, shapes: RunnerSettings, pool: BlockPool, cache: PrefixCache | None) -> Scheduler:
    sizes = SchedulerSettings(
        slots=settings.slots,
        context_limit=settings.context_limit,
        buckets=settings.buckets,
        chunk_tokens=settings.pack_tokens,
        mixed_tokens=shapes.mixed.tokens if shapes.mixed else 0,
        pause_s=0.0 if settings.mixed else PAUSE_S,
        segment=shapes.segment,
        preemption=settings.preemption,
        look_ahead=settings.look_ahead,
        eos=frozenset(settings.eos_ids),
    )
    return Scheduler(sizes, pool, cache, settings.policy)
