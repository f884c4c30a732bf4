"""Runs plans: one forward a round, on static tensors, for all running requests at once.

Knows tensors and graphs, not sessions, sockets or policy. One thread calls prepare, overlap and launch for each plan,
in this order. The outputs that launch returns are landed in the order of the launches.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from itertools import cycle
from time import perf_counter

import torch

from services.common.device import device
from services.common.device.graph import CaptureCost, Counters, inferring
from services.common.device.threads import use_threads
from services.common.model import DraftContext, Target
from services.common.pair import attach
from services.common.pair.arena import Arena
from services.target.core.drafts import Drafts, NoDrafts
from services.target.core.plan import Admission, Plan, Save
from services.target.core.width import Width
from services.target.device.context import Pool
from services.target.device.context_cost import context_micros
from services.target.device.drafted import Drafted, Path
from services.target.device.exact.check import ExactCheck
from services.target.device.expert_use import ExpertUse
from services.target.device.masks import Masks, held_rows, no_drafts
from services.target.device.noise_ring import Head, KernelNoise, NoiseRing, ring_shape
from services.target.device.outputs import Landing, RoundOutput
from services.target.device.packing import mixed, packed
from services.target.device.publish import Publisher
from services.target.device.scoring import Scorer
from services.target.device.shapes import RunnerSettings
from services.target.device.state import DeviceState, Rows
from services.target.device.steps import Steps, kind_of, mode_of, shape_of
from services.target.device.times import KeptTimes
from services.target.device.warm_up import Cell, warm_up
from services.target.drafting.handoff.protocol import Handoff

_LANDINGS = 8
"""More than there are rounds that were launched and not read: one is taken again when its round is over."""


class Runner:
    """The target's device side: the state of every slot, K/V, prefill and verify."""

    def __init__(
        self,
        model: Target,
        context: DraftContext,
        arena: Arena,
        settings: RunnerSettings,
        handoff: Handoff,
    ) -> None:
        if model.device.type == "cpu" and settings.threads > 0:
            use_threads(settings.threads)
        vocab = model.spec.vocab_size
        self._settings = settings
        owner_S = arena.tensor(attach.OWNER) if attach.OWNER in arena else None
        self._state = DeviceState(settings, vocab, arena.tensor(attach.HISTORY), model.device, owner_S)
        self.look_ahead = handoff.look_ahead
        self.pool = Pool.build(model, context, self._state, arena, handoff.mailbox, settings)
        self._ring = _ring(model, settings, arena)
        self.steps = Steps(self.pool, self._ring, handoff.gate)
        self._masks = Masks(self.pool, self.steps.round)
        self._drafted = Drafted(self.pool, self.steps.round)
        self.experts = ExpertUse(model.mixtures)
        self._scorer = Scorer(self.pool, self.steps)
        self._publisher = Publisher(arena, self.pool, self.steps.round)
        self._device = model.device
        self._drafts: Drafts = NoDrafts()
        self._overlapped = self._mixed = -1
        self._rows: Rows = ()
        self._costs: dict[Cell, float] = {}
        gpu = model.device.type == "cuda"
        most = settings.buckets[-1] * (3 * settings.widest + 4)  # of a tree: tokens, path and parents, and four more
        self._landings = cycle([Landing(most) for _ in range(_LANDINGS)] if gpu else [None])
        self._output = self._next = self._new_output()

    @property
    def sound(self) -> bool:
        """Whether the device still works; after a fatal fault of it no round can."""
        return device.sound(self._device)

    def graphs(self) -> Counters:
        """Captures, replays, recaptures and reallocations (I4)."""
        return self.steps.graphs.counters

    @property
    def capture_cost(self) -> CaptureCost:
        """What capturing every shape took and holds."""
        return self.steps.graphs.cost

    @torch.inference_mode()
    def warm_up(
        self,
        check: ExactCheck | None = None,
        threads: int = 1,
        beside: AbstractContextManager[None] = nullcontext(),
        times: KeptTimes | None = None,
    ) -> dict[Cell, float]:
        """Captures every shape; returns the cost of a verify by (bucket, width), microseconds.

        With more than one of `threads` kernels are compiled before they are captured. `beside` lasts until all are.
        Rounds that `times` has are not measured again.

        Raises:
            PacelineError: By the check, rows differ between shapes, and that is not allowed.
        """
        costs = self._costs = warm_up(self.pool, self.steps, check, threads, beside, times)
        self.experts.begin()
        self.pool.states.forget_places()
        self.publish()
        return {**costs}

    @torch.inference_mode()
    def context_micros(self) -> dict[Width, float]:
        """Microseconds by width that a token of context adds to a verify; only before the first request."""
        costs = context_micros(self.pool, self.steps)
        self.publish()
        return costs

    def use(self, drafts: Drafts) -> None:
        """Takes drafts of this attachment from now on, and of no other one."""
        self._drafts = drafts
        self.steps.round.set_generation(drafts.generation)
        self._publisher.forget()

    @inferring
    def prepare(self, plan: Plan) -> None:
        """Applies the plan to the slots and publishes what the drafter reads. The drafter is asked after this.

        The results of the round before are fetched behind the flag, so that the drafter does not wait for the copies.
        """
        start = perf_counter()
        self._next = self._new_output()
        if plan.moves:
            self.pool.states.move(plan.moves)
        if plan.saves:
            self._save(plan.saves)
        self._state.apply(plan, later=not plan.rows)
        for admission in plan.admissions:
            self._ring.forget(admission.slot)
            self._begin(admission)
        self._rows = self._state.seated(plan.rows)
        inputs = self.steps.round
        inputs.set_rows(plan.rows)
        if plan.speculative:
            self._publisher.update()
            self._drafts.publish(plan)
            # Behind the flag, where the stream waits for the drafter anyway. A plain round reads no tag.
            inputs.set_round(plan.number)
        self._output.fetch()
        if self.experts.mixtures:
            self.experts.round()
        self._next.prepare_us = (perf_counter() - start) * 1e6

    @inferring
    def publish(self) -> None:
        """Enqueues the copies of what the drafter reads into the arena."""
        self._publisher.publish()

    @inferring
    def overlap(self, plan: Plan) -> None:
        """Does the work that needs no drafts, once for a plan: prompt chunks and the noise of the next positions."""
        if self._overlapped == plan.number:
            return
        self._overlapped = plan.number
        if plan.chunks:
            start = perf_counter()
            self._prefill(plan)
            self._next.prefill_us = (perf_counter() - start) * 1e6
        if self._mixed != plan.number:
            self._fill_noise(self._rows, plan.width)

    @inferring
    def launch(self, plan: Plan, drafted: bool) -> RoundOutput:
        """Enqueues the plan's forward, unless its rows were computed beside its prompts.

        It is plain when `drafted` is False, because the drafter was late or gone.
        """
        if self._overlapped != plan.number:
            self.overlap(plan)
        start = perf_counter()
        output = self._output = self._next
        if plan.rows and self._mixed != plan.number:
            self._verify(plan, drafted)
        output.launched((perf_counter() - start) * 1e6, partial(self._drafts.watch, plan))
        return output

    def _save(self, saves: Sequence[Save]) -> None:
        for save in saves:
            self.pool.states.save(save.slot, save.snapshot, save.folded)

    def _begin(self, admission: Admission) -> None:
        if admission.snapshot is None:
            self.pool.states.reset(admission.slot)
        else:
            self.pool.states.resume(admission.slot, admission.snapshot, admission.cached)
        if self.pool.seeds is not None:
            held = admission.cached // self._settings.block_size
            self.pool.seeds.begin(admission.slot, admission.blocks[held - 1] if held else None)

    def _verify(self, plan: Plan, drafted: bool) -> None:
        seated, width = self._rows, plan.width if drafted else 1
        ruled, mode = self._state.wake(seated), mode_of(seated)
        verified = plan.kind if drafted else 1
        shape = shape_of(plan.bucket, verified)
        kind = self._kind(shape, verified, seated)
        step = self.steps.verify(*shape, mode, kind)
        if step.table is not None:
            step.table.set(plan.rows, plan.takes)
        if mode == "full":
            self._ring.point(step.noise_index_T, _heads(seated), width)
        if drafted:
            self._drafts.hold(plan, copied=ruled)
        if ruled:
            peeks = step.table is None
            self._rule(plan, seated, width, partial(self.steps.run_verify, *shape, mode, kind), peeks)
        else:
            self.steps.run_verify(*shape, mode, kind)
        self._next.leave(seated, step)

    def _rule(self, plan: Plan, seated: Rows, width: int, run: Callable[[], object], peeks: bool) -> None:
        """Leaves the masks of rows that a rule reaches to be made when the rounds before have landed.

        A step that cannot wait for them runs only then. One that `peeks` tells what some rows choose without a mask.
        """
        watch, masks = partial(self._drafts.watch, plan), self._masks
        self.steps.round.mask_gate.expect(plan.number)
        mends = width > 1 and not plan.nodes and masks.mends(seated)
        offer = self._drafted.offer(plan, seated, self._drafts.generation, watch, mends) if width > 1 else None
        ran = masks.run_beside(run) if masks.beside else None
        held = held_rows(seated)

        @cache
        def offered() -> dict[int, Path]:
            drafts = no_drafts(seated) if offer is None else offer()
            of_slots = dict(zip((slot for slot, _ in seated), drafts, strict=False))
            paths = [of_slots[slot] for slot, _ in held]
            paths = masks.mend(held, paths, plan.number) if mends else paths
            return {slot: path for (slot, _), path in zip(held, paths, strict=True)}

        def make(rows: Rows, by: Callable[..., None], *others: object) -> None:
            if rows:
                by(rows, [offered()[slot] for slot, _ in rows], width, plan.number, *others)

        def rule() -> Callable[[], None] | None:
            forward_us = self._costs.get((plan.bucket, plan.kind if width > 1 else 1), 0.0)
            now, later = masks.parted(held, peeks, forward_us)
            if mends or not masks.beside:
                offered()  # else drafts that only choices need are on their way while the next round is launched
            make(now, masks.make)
            settle = partial(make, later, masks.settle, ran)
            if masks.beside:
                return settle
            self.steps.round.mask_gate.meanwhile = settle
            run()
            return None

        self._next.later(rule)

    def _kind(self, shape: tuple[int, int], width: Width, seated: Rows) -> str:
        """The kind of round for the longest context that it can reach; the host has not read rounds in flight."""
        if shape not in self._settings.shorts:
            return kind_of(self._settings, shape, width, 0)
        ahead = self.look_ahead * self._settings.widest + int(width)
        return kind_of(self._settings, shape, width, max([seat.length for _, seat in seated]) + ahead)

    def _prefill(self, plan: Plan) -> None:
        """Computes the chunks, then chooses the first tokens of all prompts that they end in one step.

        What the plan changes of slots is written behind prompts that run alone, so that they start the sooner. Plain
        rows are computed beside a pack that is nearly full, and their next tokens chosen with first ones.
        """
        ended = tuple(chunk.slot for chunk in plan.chunks if chunk.last)
        packs = packed(plan.chunks, self._settings.packs)
        scored = [any(self._state.seat(segment.slot).spec.scored for segment in pack.segments) for pack in packs]
        apart = any(scored) or any(self._state.near(seat) for _, seat in self._rows)
        if not apart and (together := mixed(plan, packs, self._settings.mixed)):
            self._mixed, self._next.decodes = plan.number, True
            self.steps.run_prefill(together, len(plan.rows))
            self._publisher.forget()  # a verify publishes what it commits, a pack does not
            self._first_tokens((*ended, *plan.rows))
            return
        for pack, tells in zip(packs, scored, strict=True):
            if tells:
                self._next.score(self._scorer.run(pack))
            else:
                self.steps.run_prefill(pack)
            self._save(pack.saves)
        self._state.finish()
        if ended:
            self._first_tokens(ended)

    def _first_tokens(self, slots: tuple[int, ...]) -> None:
        """Chooses the tokens after prompts and rows beside them.

        The results are copied at once, because the next ones overwrite them on the device.
        """
        seated = self._state.seated(slots)
        self._fill_noise(seated, 1)
        self._state.wake(seated)
        bucket, mode = self._settings.bucket(len(slots)), mode_of(seated)
        self.steps.pack.set_first(slots)
        if mode == "full":
            self._ring.point(self.steps.first(bucket, mode).noise_index_T, _heads(seated), 1)
            if held := held_rows(seated):
                self._masks.fill(held, no_drafts(held), 1)
        step = self.steps.run_first(bucket, mode)
        self._next.copy(seated, step.result, step.logits_BWV)

    def _new_output(self) -> RoundOutput:
        return RoundOutput(self._device, self._settings.max_logprobs, next(self._landings))

    def _fill_noise(self, rows: Rows, width: int) -> None:
        sampled = [row for row in rows if row[1].sampled]
        if sampled:
            self._ring.fill(_heads(sampled), width)


def _heads(rows: Rows) -> list[Head]:
    return [Head(slot, seat.spec.sampling.seed, seat.length + 1) for slot, seat in rows]


def _ring(model: Target, settings: RunnerSettings, arena: Arena) -> NoiseRing | KernelNoise:
    if model.device.type == "cuda":
        return KernelNoise()
    dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    shape = ring_shape(settings.slots, model.spec.vocab_size, settings.widest)
    copy_TV = arena.tensor(attach.NOISE) if attach.NOISE in arena else None
    return NoiseRing(settings.slots, settings.widest, torch.zeros(shape, dtype=dtype), copy_TV)
