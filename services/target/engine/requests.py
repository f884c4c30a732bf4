"""Obeys commands about requests: start, cancel, check a key, close, drain."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from services.common.request.errors import PacelineError, invalid_field
from services.common.request.sampling import FinishReason
from services.target.core.commands import Cancel, CheckKey, CloseSession, Drain, MoveAll, OpenSession, Refuse, Start
from services.target.core.messages import End
from services.target.core.request import Request
from services.target.engine.emit import Emitter, totals
from services.target.engine.idempotency import Claim, KeyStore
from services.target.engine.meter import Meter
from services.target.scheduling.scheduler import Scheduler

_LOG = logging.getLogger(__name__)
_CANCELS = {"stop_string": FinishReason.STOP_STRING, "deadline": FinishReason.DEADLINE}
"""Why a gateway cancels, where that is an end of the request as its client is told it."""
_WHOLE = (FinishReason.STOP_TOKEN, FinishReason.STOP_STRING, FinishReason.LENGTH, FinishReason.CONTEXT)
RequestCommand = Start | Refuse | Cancel | CheckKey | OpenSession | CloseSession | Drain | MoveAll


class RequestHandler:
    """Starts and ends requests; runs on the engine's thread, between rounds."""

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
        elif isinstance(command, CheckKey):
            self._check_key(command, now)
        elif isinstance(command, OpenSession):
            self._emitter.open(command.session)
        elif isinstance(command, CloseSession):
            self._close(command, now)
        elif isinstance(command, Drain):
            self._draining = True
        else:
            self._move_all(now)

    def expired(self, requests: Iterable[Request]) -> None:
        """Reports requests that their deadline ended, waiting or running."""
        for request in requests:
            self._emitter.end(request, End(reason=FinishReason.DEADLINE, totals=totals(request)))
            self.ended(request)

    def ended(self, request: Request, in_round: bool = False) -> None:
        """Counts an ended request. Its idempotency key expires, or is free at once if its client has no answer."""
        self._meter.ended(request, str(request.end or FinishReason.CANCELLED), in_round)
        ended = request.ended if request.ended is not None else request.arrived
        if _answered(request):
            self._keys.release(_claim(request), ended)
        else:
            self._keys.forget(_claim(request))

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
                self._keys.claim(_claim(request), now)
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
            self._meter.tokens()
            return
        self._scheduler.cancel(request.uid, now, _CANCELS.get(cancel.reason, FinishReason.CANCELLED))
        self._emitter.cancel(request, cancel.tokens_kept, cancel.reason)
        self.ended(request)

    def _check_key(self, check: CheckKey, now: float) -> None:
        """Answers while draining too: other targets cannot know what runs here."""
        claim = Claim(check.tenant, check.key, check.owner, uid=0)
        if check.ended:
            self._keys.note(claim, now)
            return
        try:
            self._keys.check(claim, now)
        except PacelineError as error:
            self._emitter.refuse(check.session, check.request_id, error)
        else:
            self._emitter.turn_away(check.session, check.request_id)

    def _close(self, close: CloseSession, now: float) -> None:
        """The gateway may be gone for good, so the keys of its requests may be claimed again at once."""
        for request in self._emitter.close(close.session, close.undelivered):
            self._scheduler.cancel(request.uid, now)
            self._meter.ended(request, "cancelled")
            self._keys.forget(_claim(request))

    def _move_all(self, now: float) -> None:
        """Keys stay held: until another target has noted them, a duplicate that asks here must be refused."""
        self._draining = True
        for request in self._emitter.live():
            _LOG.info("a request moves to another target", extra={"request_id": request.spec.request_id})
            self._scheduler.cancel(request.uid, now)
            self._emitter.end(request, End(moved=True, totals=totals(request)))
            self._meter.ended(request, "moved")


def _answered(request: Request) -> bool:
    """Whether the client has an answer: a whole one, or what there was at its deadline."""
    return request.end in _WHOLE or (request.end is FinishReason.DEADLINE and request.first_token is not None)


def _claim(request: Request) -> Claim:
    spec = request.spec
    return Claim(spec.tenant, spec.key, spec.owner, request.uid, spec.resumed)
