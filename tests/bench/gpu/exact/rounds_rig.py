"""A target's device side in one process, whose rounds are planned by a scheduler of any settings."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from services.common.serving.settings import Choice
from services.target.build_device import Worker, build_worker
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.core.drafts import NoDrafts
from services.target.core.plan import Commit, Plan
from services.target.core.request import Request, RequestSpec, State
from services.target.core.round import RoundOutput
from services.target.device.packing import mixed, packed
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import PAUSE_S, SchedulerSettings
from services.target.scheduling.width.policy import FixedWidth
from services.target.settings import TargetSettings
from tests.bench.gpu.exact.loads import Text
from tests.support.tiny_checkpoints import TinyShape, write_configs

GENERATION = 7
Truth = Mapping[str, Sequence[int]]
"""Prompt and text of each request, by its id."""


@dataclass(frozen=True)
class RigShape:
    """What is built once for all cells; `chunks` are the most prompt tokens of a round."""

    shape: TinyShape
    device: str
    dtype: str
    slots: int
    widths: tuple[int, ...]
    chunks: tuple[int, ...]
    context_limit: int
    family: str = "qwen3"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the target's config.json."""
    activations: str = "auto"
    kv_dtype: str = "auto"
    products: Choice = "false"
    """From codes, of a target in FP8 or four bits: true, auto, false."""
    expert_bytes: int = 0
    memory_bytes: int = 0
    """0: most of the GPU's."""


@dataclass(frozen=True)
class Cell:
    """How requests are run: `requests` at once, every round `width` wide; `hit` and `preemption` as `Rounds` says.

    With `mixed` rows of a burst never pause, and are computed beside its prompts. With `turns` rows take turns: each
    round has as many as the next smaller bucket.
    """

    width: int
    requests: int
    chunk: int
    hit: bool = False
    preemption: bool = False
    ahead: bool = False
    mixed: bool = False
    turns: bool = False


@dataclass
class Counts:
    """That a cell did what it is named for."""

    rounds: int = 0
    accepted: int = 0
    drafted: int = 0
    hit_tokens: int = 0
    preempted: int = 0
    mixed: int = 0
    left_out: int = 0


class Fewer(FixedWidth):
    """Leaves rows out of every drafted round that may have fewer."""

    def __init__(self, width: int, counts: Counts) -> None:
        """Counts rows that are left out."""
        super().__init__(width)
        self._counts = counts

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        """As many as the next smaller bucket holds."""
        fits = max((bucket for bucket in buckets if bucket < rows), default=rows)
        self._counts.left_out += rows - fits
        return fits


class DirectDrafts(NoDrafts):
    """Drafts that are written without being asked by a message."""

    generation = GENERATION


def build(rig: RigShape, folder: Path, exact: str = "fallback") -> Worker:
    """Loads random weights and captures every step, once for all cells."""
    pair = write_configs(folder, rig.shape, rig.family, rig.changes)
    settings = TargetSettings(
        model=str(pair.target),
        drafter_model=str(pair.drafter),
        drafter_address="unix:/nowhere",
        random_weights=True,
        device=rig.device,
        dtype=rig.dtype,
        slots=rig.slots,
        context_limit=rig.context_limit,
        memory_fraction=0.85,
        memory_bytes=rig.memory_bytes,
        widths=rig.widths,
        prefill_chunk=rig.chunks[-1],
        adaptive=False,
        handoff="host",
        exact=exact,
        activations=rig.activations,
        kv_dtype=rig.kv_dtype,
        fp8_products=rig.products,
        int4_products=rig.products,
        expert_bytes=rig.expert_bytes,
    )
    worker = build_worker(settings, os.getpid())
    worker.runner.use(DirectDrafts())
    return worker


class TrueDrafts:
    """Drafts the true continuation from the lengths that the device has then, with faults at random places.

    A row is right up to a place drawn anew for every round, and one row in sixteen has no draft.
    """

    def __init__(self, worker: Worker, truth: Truth, limit: int, seed: int) -> None:
        pool = worker.runner.pool
        self._pool, self._rows_B = pool, worker.runner.steps.round.rows_B
        self._truth, self._vocab = truth, pool.model.spec.vocab_size
        self._random = torch.Generator(pool.device).manual_seed(seed)
        slots, self._most = pool.settings.slots + 1, limit
        self._truth_SC = torch.zeros(slots, limit, dtype=torch.int32, device=pool.device)

    def seat(self, slot: int, request_id: str) -> None:
        """Notes which text a slot will say."""
        known = torch.tensor(self._truth[request_id], dtype=torch.int32)
        self._truth_SC[slot, : len(known)] = known.to(self._truth_SC.device)

    @torch.inference_mode()
    def draft(self, plan: Plan) -> None:
        """Enqueues the drafts of a plan's rows behind the round before."""
        pool, count = self._pool, plan.width - 1
        rows_B = self._rows_B[: len(plan.rows)].long()
        places_K = torch.arange(count, device=pool.device)
        positions_BK = pool.state.slots.length_S[rows_B, None] + 1 + places_K
        drafts_BK = self._truth_SC[rows_B[:, None], positions_BK.clamp(max=self._most - 1)]
        fault_B1 = self._drawn(count + 2, len(plan.rows))[:, None]
        wrong_BK = self._drawn(self._vocab, *drafts_BK.shape).int()
        drafts_BK = torch.where(places_K == fault_B1, wrong_BK, drafts_BK)
        pool.mailbox_SK[rows_B, :count] = drafts_BK
        pool.tag_S3[rows_B, 0], pool.tag_S3[rows_B, 2] = plan.number, GENERATION
        pool.tag_S3[rows_B, 1] = pool.state.epoch_S[rows_B] + (self._drawn(16, len(plan.rows)) == 0)

    def _drawn(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=self._random, device=self._pool.device)


@dataclass
class Rounds:
    """Runs requests of one cell to their end.

    With `hit` there is a prefix cache, which the caller fills by requests that begin alike. With `preemption` blocks
    are given as a request grows, and each request is preempted once, after a random number of its tokens.
    """

    worker: Worker
    cell: Cell
    truth: Truth
    seed: int = 22
    number: int = 0
    """Of the last round before; rounds of all cells are numbered in a row."""
    counts: Counts = field(default_factory=Counts)
    blocks: dict[str, list[int]] = field(default_factory=dict)
    """The blocks that each request had, in their order."""

    def __post_init__(self) -> None:
        settings, cell = self.worker.runner.pool.settings, self.cell
        windows = self.worker.pool.windows
        self.worker.runner.pool.states.forget_places()
        pool = BlockPool(settings.blocks, settings.block_size, windows.anew() if windows else None)
        sizes = SchedulerSettings(
            slots=cell.requests,
            context_limit=settings.context_limit,
            buckets=settings.buckets,
            chunk_tokens=cell.chunk,
            segment=settings.segment,
            max_waiting=1 << 20,
            max_queued_tokens=1 << 40,
            mixed_tokens=settings.mixed.tokens if cell.mixed and settings.mixed else 0,
            pause_s=0.0 if cell.mixed else PAUSE_S,
            look_ahead=int(cell.ahead),
            preemption=cell.preemption,
        )
        grid = self.worker.runner.pool.states.grid
        snapshots = SnapshotPool(settings.snapshots, grid) if grid and settings.snapshots else None
        cache = PrefixCache(pool, b"model", b"drafter", snapshots) if cell.hit else None
        policy = Fewer(cell.width, self.counts) if cell.turns else FixedWidth(cell.width)
        self._scheduler = Scheduler(sizes, pool, cache, policy)
        self._scheduler._number = self.number
        self._drafts = TrueDrafts(self.worker, self.truth, settings.context_limit, self.seed)
        self._dice = random.Random(self.seed)
        self._preempt_at: dict[str, int] = {}
        self._texts: dict[str, Text] = {}
        self._seats: dict[int, str] = {}

    def run(self, specs: Sequence[RequestSpec]) -> list[Text]:
        """What each request says, from the output on that it has already."""
        self._texts = {spec.request_id: Text() for spec in specs}
        for spec in specs:
            self._scheduler.add(spec, None, time.monotonic())
            if self.cell.preemption:
                done = len(spec.token_ids) - spec.prompt_length
                self._preempt_at[spec.request_id] = self._dice.randint(done + 1, spec.stopping.max_tokens - 1)
        flights: deque[tuple[Plan, RoundOutput]] = deque()
        while True:
            self._preempt()
            plan = self._scheduler.plan(time.monotonic(), speculate=self.cell.width > 1)
            if not plan.empty:
                flights.append((plan, self._launch(plan)))
            if not flights:
                return [self._texts[spec.request_id] for spec in specs]
            if plan.empty or len(flights) > self.cell.ahead:
                launched, output = flights.popleft()
                self._note(self._scheduler.commit(launched, output.land(), time.monotonic()))

    def _launch(self, plan: Plan) -> RoundOutput:
        runner = self.worker.runner
        runner.prepare(plan)
        for admission in plan.admissions:
            name = admission.spec.request_id
            self._seats[admission.slot] = name
            self.blocks[name] = list(admission.blocks)
            self.counts.hit_tokens += admission.cached
            if self.cell.width > 1:
                self._drafts.seat(admission.slot, name)
        for growth in plan.grown:
            self.blocks[self._seats[growth.slot]] += growth.blocks
        if plan.speculative:
            self._drafts.draft(plan)
        self.number = plan.number
        self.counts.rounds += 1
        self.counts.mixed += self._beside(plan)
        return runner.launch(plan, drafted=plan.speculative)

    def _beside(self, plan: Plan) -> bool:
        """Whether the runner computes a plan's rows beside its prompts."""
        settings = self.worker.runner.pool.settings
        return mixed(plan, packed(plan.chunks, settings.packs), settings.mixed) is not None

    def _note(self, commit: Commit) -> None:
        for progress in commit.progress:
            text = self._texts[progress.request.spec.request_id]
            text.tokens += progress.tokens
            text.logprobs += progress.logprobs or ()
            self.counts.accepted += progress.accepted
            self.counts.drafted += progress.drafted

    def _preempt(self) -> None:
        """Preempts the requests whose time has come, as a lack of blocks would."""
        for request in self._scheduler.live() if self._preempt_at else ():
            if request.state is State.DECODE and self._due(request):
                del self._preempt_at[request.spec.request_id]
                self._scheduler._preempt(request)
                self.counts.preempted += 1

    def _due(self, request: Request) -> bool:
        return request.generated >= self._preempt_at.get(request.spec.request_id, 1 << 40)
