"""Builds a target's device side and scheduler from its checkpoints: memory planned, shapes fixed, steps captured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch

from services.common.device.device import keep_no_stack
from services.common.device.graph import CaptureCost, Counters
from services.common.device.numerics import Numerics, numerics_of
from services.common.kernels.nodes import MOST_NODES
from services.common.metrics.version import VERSION
from services.common.model import DraftContext, NoContext, Target, load_target
from services.common.model.drafters import LAYOUTS
from services.common.model.drafters.context import open_context
from services.common.model.drafters.nodes import CANDIDATES
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.states.states import CODED_HEAD_STEP, SequenceStates
from services.common.pair import attach
from services.common.pair.arena import Arena, ArenaSpec, MemfdArena
from services.common.pair.handoff import HandoffMode
from services.common.pair.mps import Sharing, sharing
from services.common.preflight.checks import refuse
from services.common.request.errors import invalid_field
from services.common.request.grammar import Grammars
from services.common.serving.files import read_regular
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.cache.windows import WindowPlaces
from services.target.device.exact.check import ExactCheck, ExactMode, Exactness, verdict_key
from services.target.device.exact.verdict import VerdictFile
from services.target.device.masks import mask_threads
from services.target.device.publish import arena_spec
from services.target.device.ragged import ragged_rounds
from services.target.device.runner import Runner
from services.target.device.shapes import RunnerSettings, buckets_of, mixed_of, packs_of, shorts_of
from services.target.device.times import KeptTimes
from services.target.device.warm_up import Cell
from services.target.drafting.handoff.build import build_handoff
from services.target.drafting.handoff.protocol import Handoff
from services.target.drafting.offer import OfferConstants
from services.target.drafting.shared_weights import SharedWeights, sha256_of
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.width.policy import SAMPLED, FixedWidth, WidthPolicy
from services.target.scheduling.width.width import adaptive_policy
from services.target.sessions.served_model import ServedModel
from services.target.settings import TargetSettings
from services.target.sizing.budget import MemoryBudget, MemoryTerms, context_within, plan_memory
from services.target.sizing.memory_terms import (
    available_bytes,
    check_free,
    code_bytes,
    pack_tokens,
    pair_terms,
    window_ahead,
    window_places,
    within,
)

_LOG = logging.getLogger(__name__)

Costs = Callable[[], Mapping[Cell, float]]
Rehearse = Callable[[TargetSettings, Arena, OfferConstants, Handoff, Callable[[], str]], AbstractContextManager[None]]
"""Makes what a drafter does while steps are captured; the last tells the hash of the weights that both read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A target without its services; ``costs`` reads the present cost table in microseconds."""

    model: ServedModel
    scheduler: Scheduler
    runner: Runner
    handoff: Handoff
    arena: Arena
    pool: BlockPool
    snapshots: SnapshotPool | None
    budget: MemoryBudget
    weights: SharedWeights | None
    terms: OfferConstants
    costs: Costs
    gpu_sharing: Sharing
    numerics: Numerics
    exactness: Exactness
    synthetic_acceptance: tuple[float, ...]

    @property
    def graphs(self) -> Counters:
        """Captures and replays so far."""
        return self.runner.graphs()

    @property
    def capture_cost(self) -> CaptureCost:
        """What capturing every step took and holds."""
        return self.runner.capture_cost

    def close(self) -> None:
        """Frees the arena."""
        self.arena.close()


def _no_rehearsal(*_: object) -> AbstractContextManager[None]:
    return nullcontext()


def build_worker(settings: TargetSettings, pid: int, rehearse: Rehearse = _no_rehearsal) -> Worker:
    """Loads the checkpoints, plans the memory and captures every step; takes seconds.

    `rehearse` is asked for what lasts while steps are captured.

    Raises:
        ModelError: A checkpoint is damaged, or the two do not belong together.
        PacelineError: The settings do not fit the model or the memory, or ask for rows that this GPU does not give;
            the field is named.
    """
    keep_no_stack(torch.device(settings.device))
    if not settings.random_weights:
        refuse(settings.model, "" if settings.drafter_model == "none" else settings.drafter_folder)
    model = load_target(
        settings.model, getattr(torch, settings.dtype), settings.device, settings.random_weights, settings.activations,
        code_bytes(settings, torch.device(settings.device)), settings.expert_bytes, settings.keep_widened,
    )  # fmt: skip
    _check_heads(settings, model)
    context = _context(settings, model)
    limit = _context_limit(settings, model)
    widths, trees = _widths(settings, model, context, limit)
    budget = _plan(settings, pair_terms(settings, model, context, limit, widths, trees), model.device, limit)
    shapes = _shapes(settings, model, context, budget.blocks, context_within(limit, budget), widths, trees)
    arena = _arena(settings, arena_spec(model.spec, context, shapes, model.dtype, model.device.type == "cpu"))
    handoff = build_handoff(settings.handoff_mode, arena, model.device, settings.watchdog, settings.shares_memory)
    runner = Runner(model, context, arena, shapes, handoff)
    numerics = _numerics(settings, model)
    _LOG.info("numerics", extra={"digest": numerics.digest, **asdict(numerics)})
    key = verdict_key(numerics, model.spec, context.spec, shapes, model.weight_bytes)
    on_gpu = settings.device == "cuda"
    check = ExactCheck(ExactMode(settings.exact), VerdictFile(key), "" if on_gpu else "this is a CPU")
    times = KeptTimes(key if on_gpu else "")
    terms = _terms(shapes, context, pid, handoff.wanted)
    weights = runner.pool.weights
    sha256 = partial(sha256_of, weights)
    micros = runner.warm_up(check, settings.compile_threads, rehearse(settings, arena, terms, handoff, sha256), times)
    _LOG.info("steps captured", extra={"steps": runner.graphs().captures, **asdict(runner.capture_cost)})
    policy, costs = _policy(settings, shapes, micros, runner)
    pool = BlockPool(budget.blocks, settings.block_size, _windows(settings, model, shapes))
    snapshots = _snapshots(settings, model, runner)
    cache = _cache(settings, pool, snapshots, runner)
    return Worker(
        model=_served(settings, model, shapes.context_limit, shapes.max_draft),
        scheduler=_scheduler(settings, shapes, pool, policy, cache, handoff.look_ahead),
        runner=runner,
        handoff=handoff,
        arena=arena,
        pool=pool,
        snapshots=snapshots,
        budget=budget,
        weights=weights,
        terms=replace(terms, embedding_sha256=sha256()),
        costs=costs,
        gpu_sharing=sharing(settings.device),
        numerics=numerics,
        exactness=check.found,
        synthetic_acceptance=settings.synthetic_acceptance,
    )


def _numerics(settings: TargetSettings, model: Target) -> Numerics:
    kv_dtype, activations = (kind if kind != "auto" else "" for kind in (settings.kv_dtype, settings.activations))
    return numerics_of(VERSION, model.device, settings.dtype, kv_dtype, activations)


def _check_heads(settings: TargetSettings, model: Target) -> None:
    """Refuses codes of heads that no kernel takes."""
    odd = [attention.head_dim for attention in model.spec.groups if attention.head_dim % CODED_HEAD_STEP]
    if settings.coded and model.device.type == "cuda" and odd:
        raise invalid_field(
            "kv_dtype", f"int8 on a GPU takes heads of a multiple of {CODED_HEAD_STEP}, and some are {odd[0]}"
        )


def _context(settings: TargetSettings, model: Target) -> DraftContext:
    if settings.drafter_model == "none":
        return NoContext()
    anchored = LAYOUTS[settings.drafter_sample_from_anchor]
    return open_context(settings.drafter_folder, model, settings.random_weights, anchored)


def _arena(settings: TargetSettings, spec: ArenaSpec) -> Arena:
    if settings.device == "cpu":
        return MemfdArena.create(spec, attach.DRAFTER_WRITES)
    from services.common.pair.arena.cuda import CudaArena  # needs cupy, which machines without a GPU lack

    return CudaArena.create(spec)


def _context_limit(settings: TargetSettings, model: Target) -> int:
    most = model.spec.max_positions
    if settings.context_limit > most:
        raise invalid_field("context_limit", f"the model has {most} positions")
    return settings.context_limit or most


def _nodes(settings: TargetSettings, model: Target, context: DraftContext) -> bool:
    """Whether drafts are trees; where they cannot be, chains are served, and a line says why."""
    if not (settings.nodes and settings.speculates):
        return False
    windowed = any(own.window for own in model.spec.groups)
    hindrances = {
        "the model has recurrent layers": model.spec.delta is not None,
        "a window of the model holds no tree": any(0 < own.window < MOST_NODES for own in model.spec.groups),
        "no kernel has windows over trees": windowed and model.device.type == "cuda",
        "the drafter ranks no tokens": not context.ranks,
        "acceptance is synthetic, of chains alone": bool(settings.synthetic_acceptance)
        and not settings.synthetic_siblings,
    }
    why = next((why for why, holds in hindrances.items() if holds), "")
    if why:
        _LOG.warning("drafts are chains, not trees", extra={"why": why})
    return not why


def _widths(
    settings: TargetSettings, model: Target, context: DraftContext, limit: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The widths of chains, and of trees, that the drafter can fill with drafts, and whose graphs fit."""
    if not settings.speculates:
        return (1,), ()
    longest = context.most_rows or settings.draft_widths[-1]
    sets = (settings.draft_widths, settings.fewer_widths)
    widths, fewer = (tuple(width for width in each if width <= longest) for each in sets)
    most = min(MOST_NODES, 1 + CANDIDATES * (longest - 1)) if _nodes(settings, model, context) else 0
    trees = tuple(nodes for nodes in settings.tree_widths if nodes <= most)
    choices = ((widths, trees), (fewer, trees), (fewer, ()))
    return within(settings, model, context, limit, choices)


def _plan(settings: TargetSettings, terms: MemoryTerms, device: torch.device, limit: int) -> MemoryBudget:
    """Sizes the pool, to at most twice what all slots can hold: more does not help."""
    request_blocks = -(-limit // settings.block_size)
    most = settings.blocks or 2 * settings.slots * request_blocks
    available = available_bytes(settings, terms, device)
    budget = plan_memory(terms, available, settings.slots, settings.block_size, most)
    check_free(budget, device)
    _LOG.info("memory planned", extra={"blocks": budget.blocks, "bytes": budget.total_bytes, **asdict(terms)})
    return budget


def _shapes(
    settings: TargetSettings,
    model: Target,
    context: DraftContext,
    blocks: int,
    limit: int,
    widths: tuple[int, ...],
    trees: tuple[int, ...],
) -> RunnerSettings:
    buckets = buckets_of(settings.slots)
    ragged = ragged_rounds(settings, model.spec, context, buckets, widths)
    every = sorted({*widths, *trees})
    packs = packs_of(pack_tokens(settings, model, every), model.spec, model.device)
    return RunnerSettings(
        slots=settings.slots,
        blocks=blocks,
        context_limit=limit,
        block_size=settings.block_size,
        snapshots=settings.held_snapshots,
        widths=widths,
        buckets=buckets,
        shorts=shorts_of(buckets, every, model.spec, model.dtype, model.device, ragged, settings.coded),
        packs=packs,
        mixed=mixed_of(packs, buckets[-1], model.spec, model.device),
        eos_ids=tuple(model.spec.eos_token_ids),
        threads=settings.threads,
        synthetic_acceptance=settings.synthetic_acceptance,
        synthetic_siblings=settings.synthetic_siblings,
        eager=settings.eager,
        trees=trees,
        coded=settings.coded,
        near=window_places(settings, model, limit, every, trees),
        ragged=ragged,
    )


def _windows(settings: TargetSettings, model: Target, shapes: RunnerSettings) -> WindowPlaces | None:
    """The places of layers with a window, where they have blocks of their own."""
    if not shapes.near:
        return None
    window = max(own.window for own in model.spec.groups)
    ahead = window_ahead(settings, model, shapes.widths)
    return WindowPlaces(shapes.near, shapes.blocks, shapes.block_size, window, ahead)


def _policy(
    settings: TargetSettings, shapes: RunnerSettings, micros: Mapping[Cell, float], runner: Runner
) -> tuple[WidthPolicy, Costs]:
    if settings.adaptive and len(shapes.every_width) > 1:
        # On a CPU, times vary by more than contexts of its models add.
        per_token = runner.context_micros() if settings.device == "cuda" else {}
        _LOG.info("contexts", extra={"micros_per_token": {str(width): micros for width, micros in per_token.items()}})
        policy = adaptive_policy(shapes.every_width, shapes.buckets, micros, per_token)
        return policy, policy.costs.table
    return FixedWidth(shapes.every_width[-1], SAMPLED), lambda: micros


def _snapshots(settings: TargetSettings, model: Target, runner: Runner) -> SnapshotPool | None:
    grid = runner.pool.states.grid
    if not settings.held_snapshots or not grid:
        return None
    return SnapshotPool(
        settings.held_snapshots, grid, SequenceStates.sizes(model.spec, model.dtype.itemsize).per_snapshot
    )


def _cache(
    settings: TargetSettings, pool: BlockPool, snapshots: SnapshotPool | None, runner: Runner
) -> PrefixCache | None:
    if not settings.prefix_cache:
        return None
    held = runner.pool
    # K/V of another type are other content.
    eight = f" {settings.kv_dtype} {settings.activations}" if settings.coded or settings.rounds else ""
    target = held.model.revision + eight
    revisions = target.encode(), held.context.revision.encode()
    return PrefixCache(pool, *revisions, snapshots)


def _scheduler(
    settings: TargetSettings,
    shapes: RunnerSettings,
    pool: BlockPool,
    policy: WidthPolicy,
    cache: PrefixCache | None,
    look_ahead: int,
) -> Scheduler:
    limits = SchedulerSettings(
        slots=shapes.slots,
        context_limit=shapes.context_limit,
        buckets=shapes.buckets,
        chunk_tokens=settings.chunk_tokens,
        pack_tokens=max(pack.rows for pack in shapes.packs),
        mixed_tokens=shapes.mixed.tokens if shapes.mixed else 0,
        segment=shapes.segment,
        pause_s=settings.pause_s,
        max_waiting=settings.max_waiting,
        max_queued_tokens=settings.queued_tokens,
        look_ahead=look_ahead,
        preemption=settings.preemption == "true",
        open_ended=settings.preemption == "auto",
        eos=frozenset(shapes.eos_ids),
    )
    return Scheduler(limits, pool, cache, policy)


def _served(settings: TargetSettings, model: Target, limit: int, max_draft: int) -> ServedModel:
    return ServedModel(
        name=settings.model_name,
        revision=model.revision,
        context_limit=limit,
        vocab_size=model.spec.vocab_size,
        eos_token_ids=tuple(model.spec.eos_token_ids),
        dtype=settings.dtype,
        max_draft=max_draft,
        recommended_sampling=model.spec.recommended_sampling,
        grammars=_grammars(settings, model),
    )


def _grammars(settings: TargetSettings, model: Target) -> Grammars | None:
    """What compiles rules of outputs; None, and a warning, where the checkpoint's tokenizer cannot be used."""
    path = resolve_folder(settings.model) / "tokenizer.json"
    apart = mask_threads() if model.device.type == "cuda" else 1
    try:
        return Grammars(read_regular(path).decode(), model.spec.vocab_size, model.spec.eos_token_ids, apart)
    except (OSError, ValueError) as error:
        _LOG.warning("outputs cannot be ruled by grammars", extra={"error": str(error)[:300]})
        return None


def _terms(shapes: RunnerSettings, context: DraftContext, pid: int, handoff: HandoffMode) -> OfferConstants:
    """What every drafter is offered, but for the hash of the weights that it reads."""
    return OfferConstants(
        embedding_sha256="",
        drafter_sha256=context.revision,
        slots=shapes.slots,
        buckets=shapes.buckets,
        widths=shapes.widths[1:],
        trees=shapes.trees,
        block_size=shapes.block_size,
        target_pid=pid,
        handoff=handoff,
        context_limit=shapes.context_limit,
    )
