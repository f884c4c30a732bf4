"""Obeys commands about requests: start, cancel, close, drain."""

from __future__ import annotations

from services.common.errors import PacelineError, invalid_field
from services.common.sampling import FinishReason
from services.target.emit import Emitter, totals
from services.target.inbox import Cancel, CloseSession, Drain, MoveAll, Refuse, Start
from services.target.keys import KeyStore
from services.target.meter import Meter
from services.target.request import Request
from services.target.scheduler import Scheduler
from services.target.updates import End

RequestCommand = Start | Refuse | Cancel | CloseSession | Drain | MoveAll


class CommandDesk:
    """Takes requests in and lets them go; runs on the engine's thread, between rounds."""

    def __init__(self, scheduler: Scheduler, emitter: Emitter, keys: KeyStore, meter: Meter) -> None:
        """Starts taking requests."""
        self._scheduler = scheduler
        self._emitter = emitter
        self._keys = keys
        self._meter = meter
        self._draining = False

    def obey(self, command: RequestCommand, now: float) -> None:
        """Obeys one command; a refusal is reported to the request's session, never raised."""
        if isinstance(command, Start):
            self._start(command, now)
        elif isinstance(command, Refuse):
            self._refuse(command.session, command.request_id, command.error)
        elif isinstance(command, Cancel):
            self._cancel(command, now)
        elif isinstance(command, CloseSession):
            self._close(command, now)
        elif isinstance(command, Drain):
            self._draining = True
        else:
            self._move_all(now)

    def expire(self, now: float) -> None:
        """Ends requests whose deadline has passed, waiting or running; settles those that ended a while ago."""
        self._emitter.settle(now)
        for request in self._scheduler.expire(now):
            self._emitter.end(request, End(reason=FinishReason.DEADLINE, totals=totals(request)))
            self.ended(request)

    def ended(self, request: Request) -> None:
        """Counts an ended request and lets its idempotency key expire."""
        self._meter.ended(request, str(request.end or FinishReason.CANCELLED))
        ended = request.ended if request.ended is not None else request.arrived
        self._keys.release(request.spec.tenant, request.spec.key, ended)

    def _start(self, start: Start, now: float) -> None:
        spec, session = start.spec, start.session
        if self._draining:
            self._emitter.turn_away(session, spec.request_id)
            return
        try:
            if self._emitter.find(session, spec.request_id) is not None:
                raise invalid_field("request_id", "a request of this id is running in this session")
            request = self._scheduler.add(spec, session, now)
            try:
                self._keys.claim(spec.tenant, spec.key, now)
            except PacelineError:
                self._scheduler.cancel(request.uid, now)
                raise
        except PacelineError as error:
            self._refuse(session, spec.request_id, error)
            return
        self._emitter.add(session, request)

    def _refuse(self, session: int, request_id: str, error: PacelineError) -> None:
        self._emitter.refuse(session, request_id, error)
        self._meter.refused(error)

    def _cancel(self, cancel: Cancel, now: float) -> None:
        request = self._emitter.find(cancel.session, cancel.request_id)
        if request is None:
            self._emitter.kept(cancel.session, cancel.request_id, cancel.tokens_kept, cancel.reason)
            return
        self._scheduler.cancel(request.uid, now)
        self._emitter.cancel(request, cancel.tokens_kept, cancel.reason)
        self.ended(request)

    def _close(self, close: CloseSession, now: float) -> None:
        for request in self._emitter.close(close.session, close.undelivered):
            self._scheduler.cancel(request.uid, now)
            self._gone(request, "cancelled")

    def _move_all(self, now: float) -> None:
        self._draining = True
        for request in self._emitter.live():
            self._scheduler.cancel(request.uid, now)
            self._emitter.end(request, End(moved=True, totals=totals(request)))
            self._gone(request, "moved")

    def _gone(self, request: Request, reason: str) -> None:
        """The request may be tried again with its key, here or elsewhere."""
        self._meter.ended(request, reason)
        self._keys.forget(request.spec.tenant, request.spec.key)
