"""Wires a target's parts: engine and its thread, sessions, attacher, description."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from services.common.metrics.catalogue import TargetMetrics
from services.common.pair.arena import Arena
from services.common.serving import tracing
from services.common.serving.tls import Peers, TlsFiles
from services.target.build_device import Worker
from services.target.core.commands import Command
from services.target.core.inbox import Inbox
from services.target.core.launching import Launching
from services.target.core.sync_points import SyncPoints
from services.target.describe import Describer
from services.target.drafting.attacher import Attacher, AttacherSettings
from services.target.drafting.handoff.protocol import Handoff
from services.target.drafting.offer import OfferConstants, Offers, make_offers
from services.target.drafting.rehearsal import rehearsed
from services.target.engine.emit import Emitter
from services.target.engine.engine import Engine
from services.target.engine.idempotency import KeyStore
from services.target.engine.ledger import TokenLedger
from services.target.engine.meter import FirstRounds, Meter
from services.target.engine.parts import EngineParts
from services.target.engine.recorder import FlightRecorder
from services.target.engine.requests import RequestHandler
from services.target.engine.spans import Spans
from services.target.engine.thread import EngineThread
from services.target.engine.watch import EngineWatch
from services.target.sessions.service import ServiceParts
from services.target.sessions.sessions import Sessions
from services.target.settings import TargetSettings
from services.target.state_meter import StateMeter

OnLoop = Callable[[Callable[..., None]], Callable[..., None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """A target's moving parts."""

    worker: Worker
    thread: EngineThread
    sessions: Sessions
    service: ServiceParts
    watch: EngineWatch
    state: StateMeter
    attacher: Attacher | None
    offers: Offers | None
    tracer: tracing.Tracer

    def start(self) -> None:
        """Starts the engine, then looks for a drafter."""
        self.thread.start()
        if self.attacher is not None:
            self.attacher.start()

    def close(self) -> None:
        """Ends all threads and frees the arena; an engine that does not end keeps it."""
        if self.attacher is not None:
            self.attacher.close()
        if self.offers is not None:
            self.offers.close()
        if self.thread.stop():
            self.worker.close()
        self.tracer.close()


def build_services(
    settings: TargetSettings,
    worker: Worker,
    metrics: TargetMetrics,
    folder: Path,
    on_loop: OnLoop,
    failed: Callable[[BaseException], None],
) -> Services:
    """Builds everything around a worker; starts nothing.

    Args:
        settings: The target's.
        worker: The device side and the scheduler.
        metrics: The target's.
        folder: Where the side socket may be.
        on_loop: Wraps a call so that any thread can ask the event loop for it.
        failed: Called on any thread when the engine dies or the target's own weights are damaged.
    """
    inbox = Inbox()
    sessions = Sessions(inbox.put, settings.outbox_frames)
    recorder = FlightRecorder()
    tracer = tracing.tracer("target", pair=settings.pair_id)
    launching = Launching()
    spans = Spans(tracer, settings.trace_rounds) if tracer.active else None
    engine = _engine(worker, metrics, recorder, on_loop(sessions.deliver), spans, launching)
    offers, attacher = _attacher(settings, worker, folder, inbox.put, metrics.handoff_seconds.observe, failed)
    describer = Describer(pair_id=settings.pair_id, worker=worker, engine=engine, recorder=recorder, attacher=attacher)
    service = ServiceParts(
        sessions=sessions,
        submit=inbox.put,
        describe=describer.describe,
        model=worker.model,
        numerics=worker.numerics,
        load=describer.load,
        proposer=lambda: describer.proposer,
        pair_id=settings.pair_id,
        default_max_tokens=settings.default_max_tokens,
        max_request_s=settings.max_request_s,
        launching=launching,
    )
    return Services(
        worker=worker,
        thread=EngineThread(engine, inbox, failed, settings.core),
        sessions=sessions,
        service=service,
        watch=EngineWatch(engine, settings.stall_s),
        state=_state_meter(worker, metrics, attacher),
        attacher=attacher,
        offers=offers,
        tracer=tracer,
    )


def _state_meter(worker: Worker, metrics: TargetMetrics, attacher: Attacher | None) -> StateMeter:
    runner = worker.runner
    return StateMeter(
        metrics,
        runner.graphs,
        worker.capture_cost,
        worker.pool,
        worker.snapshots,
        attacher,
        worker.handoff,
        runner.experts,
    )


def _engine(
    worker: Worker,
    metrics: TargetMetrics,
    recorder: FlightRecorder,
    deliver: Callable[..., None],
    spans: Spans | None,
    launching: Launching,
) -> Engine:
    ledger = TokenLedger()
    first_rounds = FirstRounds(bool(worker.runner.pool.context.taps))
    emitter, meter = Emitter(ledger), Meter(metrics, ledger, worker.pool, spans, first_rounds)
    parts = EngineParts(
        scheduler=worker.scheduler,
        runner=worker.runner,
        emitter=emitter,
        requests=RequestHandler(worker.scheduler, emitter, KeyStore(), meter),
        meter=meter,
        recorder=recorder,
        deliver=deliver,
        launching=launching,
    )
    SyncPoints.from_environment().stand_before(
        plan=worker.scheduler.plan,
        draft=worker.runner.prepare,
        verify=worker.runner.launch,
        commit=worker.scheduler.commit,
        emit=recorder.add,
    )
    return Engine(parts)


def _attacher(
    settings: TargetSettings,
    worker: Worker,
    folder: Path,
    submit: Callable[[Command], None],
    observe: Callable[[float], object],
    failed: Callable[[BaseException], None],
) -> tuple[Offers | None, Attacher | None]:
    if not settings.speculates or not (worker.terms.widths or worker.terms.trees):
        return None, None
    offers = make_offers(worker.arena, worker.terms, folder, settings.shares_memory)
    return offers, Attacher(_drafter(settings), offers, submit, worker.handoff, failed, worker.weights, observe)


def _drafter(settings: TargetSettings) -> AttacherSettings:
    files = TlsFiles(settings.drafter_tls_cert, settings.drafter_tls_key, settings.drafter_tls_ca)
    peers = Peers(files, settings.drafter_tls_name)
    return AttacherSettings(settings.drafter_address, settings.watchdog, settings.kill_quarantined, peers)


def rehearsal(
    settings: TargetSettings, arena: Arena, terms: OfferConstants, handoff: Handoff, sha256: Callable[[], str]
) -> AbstractContextManager[None]:
    """What lets the drafter compile and capture beside its target; nothing where nothing is compiled or shared."""
    compiles = settings.device == "cuda" and settings.compile_threads > 1 and not settings.eager
    if not (compiles and settings.speculates and settings.shares_memory and (terms.widths or terms.trees)):
        return nullcontext()
    return rehearsed(_drafter(settings), make_offers(arena, terms, Path()), handoff.generations, sha256)
