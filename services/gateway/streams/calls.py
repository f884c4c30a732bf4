"""What becomes of each call: one record from its headers to its end, then one line, one count and one span of it.

A listener makes the record before it knows who calls, so refusals are told and counted wherever they happen. Those who
learn something of the call fill it in. No text of a client is in it but the id that it gave its request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import grpc

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.errors import Code, PacelineError, Reason
from services.common.serving import logs
from services.common.serving.measures import Measures, NoMeasures
from services.common.serving.tracing import NoTracer, Span, Tracer, trace_of
from services.gateway.streams.observed import attributes, fields, measure

if TYPE_CHECKING:
    from services.gateway.streams.journey import Totals

logger = logging.getLogger("services.gateway.access")

OTHER = "other"
"""The endpoint of calls to what is not served, and the tenant of those whose name is no label."""

ANYBODY, UNKNOWN = "anybody", "unknown"
"""Tenants by name where nobody needs a key, and where a key is unknown; a tenant called so has another name here."""


EARLY_S, EARLY_PART = 0.02, 0.02
"""So much of a call's time may be left when its client ends it for being over: gRPC sends times rounded up."""


@dataclass(slots=True)
class Call:
    """One call; `status` is that of HTTP, 0 for gRPC. Times are in seconds, `began` by the monotonic clock.

    `time_s` is what its client gives it, None for no end. `generates` once it is a call for text that has got past its
    headers; tokens and rounds are sums over its choices.
    `routine` calls, such as scrapes, have no line where they succeed.
    """

    endpoint: str = OTHER
    request_id: str = ""
    span: Span = field(default_factory=lambda: NoTracer().begin("", ""))
    began: float = field(default_factory=time.monotonic)
    time_s: float | None = None
    tenant: str = ANYBODY
    label: str = ANYBODY
    model: str = ""
    code: Code = Code.OK
    reason: str = ""
    status: int = 0
    duration_s: float = 0.0
    generates: bool = False
    routine: bool = False
    finish_reasons: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    first_token_s: float | None = None
    pairs: list[str] = field(default_factory=list)
    migrations: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def _over(self) -> bool:
        """Whether the time that its client gave it is over."""
        left_s = math.inf if self.time_s is None else self.time_s - (time.monotonic() - self.began)
        return left_s < EARLY_S + EARLY_PART * (self.time_s or 0.0)

    @property
    def refused(self) -> bool:
        """Whether its client got an error and no token."""
        return self.code not in (Code.OK, Code.CANCELLED) and not self.completion_tokens

    def named(self, request_id: str) -> None:
        """Its request has another id, that of its client."""
        self.request_id = request_id
        logs.request_id.set(request_id)

    def failed(self, error: BaseException) -> None:
        """It ended by an error: of ours, the client's leaving, or a defect."""
        if isinstance(error, PacelineError):
            self.code, self.reason = error.code, error.reason.value
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            over = self._over
            self.code = Code.DEADLINE_EXCEEDED if over else Code.CANCELLED
            self.reason = Reason.DEADLINE.value if over else ""
        elif not isinstance(error, grpc.aio.AbortError) or self.code is Code.OK:
            self.code, self.reason = Code.INTERNAL, Reason.INTERNAL.value

    def aborted(self, code: int) -> None:
        """A service that is not ours, such as gRPC's for health, ends it with a code of its own."""
        self.code = Code(code)

    def answered(self, status: int, failed: bool) -> None:
        """It has an answer over HTTP, by which alone some calls fail, such as a probe of one that is not ready."""
        self.status = status or self.status
        if failed and self.code is Code.OK:
            self.code = Code.UNAVAILABLE if status == HTTPStatus.SERVICE_UNAVAILABLE else Code.PERMISSION_DENIED

    def ran(self, pair: str, totals: Totals, prompt_tokens: int) -> None:
        """One of its choices has left its target; a prompt counts with the first choice of it, 0 with others."""
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += totals.usage.cached_tokens if prompt_tokens else 0
        self.migrations += totals.migrations
        self.rounds += totals.speculation.rounds
        self.drafted += totals.speculation.drafted
        self.accepted += totals.speculation.accepted
        if pair and pair not in self.pairs:
            self.pairs.append(pair)


_current: ContextVar[Call | None] = ContextVar("call", default=None)


def current_call() -> Call:
    """The call being handled; outside of any a record that nobody reads."""
    return _current.get() or Call()


class TenantLabels:
    """Names of tenants as they stand in metrics: at most so many, the others are one."""

    def __init__(self, chosen: Iterable[str], known: Callable[[], Iterable[str]] | None, most: int) -> None:
        """`chosen` by the settings, or the first `most` that are `known`; None where nobody needs a key."""
        self._chosen, self._known, self._most = frozenset(chosen), known, most

    def of(self, name: str) -> tuple[str, str]:
        """A tenant's name as the log has it, and its label; an empty one is whoever calls without."""
        if not name:
            return (ANYBODY, ANYBODY) if self._known is None else (UNKNOWN, UNKNOWN)
        named = self._chosen or ([] if self._known is None else [*self._known()][: self._most])
        told = f"tenant {name}" if name in (ANYBODY, UNKNOWN, OTHER) else name
        return told, told if name in named else OTHER


class Calls:
    """Makes the records of a gateway, and of each that ends what others see of it."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        tracer: Tracer,
        labels: TenantLabels,
        model: Callable[[], str],
        lines: bool = True,
        refused_lines: float = 1.0,
        measures: Measures | None = None,
    ) -> None:
        """`model` is that of calls that name none.

        With `lines` each call has one in the log, of refused ones this share.
        """
        self._metrics = metrics
        self._tracer = tracer
        self._labels = labels
        self._model = model
        self._lines = lines
        self._refused_lines = refused_lines
        self._measures = None if isinstance(measures, NoMeasures) else measures

    @contextmanager
    def of(self, endpoint: str, method: str, request_id: str, parent: str = "") -> Iterator[Call]:
        """The record of the call that the block serves; a listener that answers errors itself tells `Call.failed`.

        Args:
            endpoint: what is called, of a bounded set.
            method: of HTTP; empty for gRPC.
            request_id: the id by which client and logs name it.
            parent: the traceparent of the client, if any.
        """
        name = f"{method} {endpoint}" if method else endpoint.removeprefix("/")
        call = Call(endpoint, request_id, self._tracer.begin(name, parent))
        self.belongs(call, "")
        _current.set(call)
        logs.request_id.set(request_id)
        logs.trace_id.set(trace_of(call.span.traceparent))
        try:
            yield call
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            self._ended(call, method)

    def refuse(self, method: str, request_id: str, status: int, error: PacelineError, tenant: str = "") -> None:
        """Tells of a call that was refused before it reached what it called."""
        with self.of(OTHER, method, request_id) as call:
            self.belongs(call, tenant)
            call.failed(error)
            call.status = status

    def dropped(self, reason: str) -> None:
        """Counts a connection that had to end, of which no call may be known."""
        self._metrics.gateway_dropped_connections[reason].inc()

    def belongs(self, call: Call, tenant: str) -> None:
        """The call is one of a tenant; empty for none."""
        call.tenant, call.label = self._labels.of(tenant)

    def _ended(self, call: Call, method: str) -> None:
        call.duration_s = time.monotonic() - call.began
        call.model = call.model or self._model()
        self._count(call)
        known = attributes(call, method) if self._tracer.active else {}
        call.span.end(known, call.reason if call.code in SERVER_ERRORS else "")
        if not (self._lines and logger.isEnabledFor(logging.INFO)):
            return
        if not call.refused:
            if not call.routine:
                logs.tell(logger, "request ended", partial(fields, call))
        elif random.random() < self._refused_lines:
            logs.tell(logger, "request refused", partial(fields, call))

    def _count(self, call: Call) -> None:
        metrics, code = self._metrics.of(call.model), call.code.name
        metrics.gateway_requests[call.endpoint, code].inc()
        metrics.gateway_tenant_requests[call.label, code].inc()
        if call.refused and call.reason:
            metrics.gateway_rejects[call.reason].inc()
        if not call.generates:
            return
        if self._measures is not None:
            measure(call, self._measures)
        metrics.request_seconds.observe(call.duration_s)
        for reason in call.finish_reasons:
            metrics.gateway_finishes[reason].inc()
        if call.prompt_tokens and not call.refused:
            metrics.gateway_prompt_tokens[call.label].inc(call.prompt_tokens)
            metrics.gateway_cached_prompt_tokens[call.label].inc(call.cached_tokens)
            metrics.gateway_generation_tokens[call.label].inc(call.completion_tokens)
            metrics.request_prompt_length.observe(call.prompt_tokens)
            metrics.request_generation_length.observe(call.completion_tokens)


SERVER_ERRORS = frozenset({Code.INTERNAL, Code.UNKNOWN, Code.UNAVAILABLE, Code.DATA_LOSS, Code.DEADLINE_EXCEEDED})
"""What is a server's fault by the conventions of OpenTelemetry."""
