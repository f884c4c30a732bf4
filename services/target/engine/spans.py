"""Spans of requests, for traces that the client asked to be sampled; rounds are their events, or spans to debug by."""

from __future__ import annotations

import time

from services.common.serving.tracing import Attributes, Event, Tracer, sampled, trace_of
from services.target.core.plan import Commit
from services.target.core.request import Request
from services.target.engine.recorder import RoundEntry

MOST_EVENTS = 128
"""Rounds of one request that are told, the first ones; OpenTelemetry keeps no more events of a span."""


class Spans:
    """Records spans of past work, on the engine's thread; an inactive tracer costs one comparison a round."""

    def __init__(self, tracer: Tracer, rounds: float = 0.0) -> None:
        """Records into ``tracer``; ``rounds`` is the share of traces in which each round is a span, by their ids."""
        self._tracer = tracer
        self._share = rounds * 2**32
        self._events: dict[int, list[Event]] = {}

    def round(self, entry: RoundEntry, commit: Commit) -> None:
        """Notes the round for each sampled request that it moved."""
        if not self._tracer.active:
            return
        end_ns = time.time_ns()
        start_ns = end_ns - (entry.draft_us + entry.verify_us + entry.host_us) * 1000
        for progress in commit.progress:
            traceparent = progress.request.spec.traceparent
            if sampled(traceparent):
                facts: Attributes = {
                    "round": entry.number,
                    "width": entry.width,
                    "requests": entry.requests,
                    "accepted": progress.accepted,
                    "draft_us": entry.draft_us,
                    "verify_us": entry.verify_us,
                    "fallback": entry.fallback,
                }
                if int(trace_of(traceparent)[-8:], 16) < self._share:
                    round_ = self._tracer.record("paceline.round", traceparent, start_ns, end_ns, facts)
                    self._steps(round_, start_ns, entry)
                    continue
                events = self._events.setdefault(progress.request.uid, [])
                if len(events) < MOST_EVENTS:
                    events.append(("paceline.round", end_ns, facts))

    def _steps(self, parent: str, start_ns: int, entry: RoundEntry) -> None:
        """Spans of the wait for drafts and of the verify; the drafter itself sees no traceparent."""
        drafted_ns = start_ns + entry.draft_us * 1000
        if entry.draft_us:
            self._tracer.record("paceline.draft", parent, start_ns, drafted_ns, {"tokens": entry.drafted})
        self._tracer.record("paceline.verify", parent, drafted_ns, drafted_ns + entry.verify_us * 1000)

    def ended(self, request: Request, reason: str) -> None:
        """Queue, prefill and decode of a sampled request that left."""
        traceparent = request.spec.traceparent
        if not self._tracer.active or not sampled(traceparent):
            return
        events = self._events.pop(request.uid, [])
        facts: Attributes = {
            "request_id": request.spec.request_id,
            "reason": reason,
            "rounds": request.stats.rounds,
            "accepted": request.stats.accepted,
            "cached_tokens": request.cached_tokens,
        }
        moments = (request.arrived, request.admitted, request.first_token, request.ended)
        epoch_s = time.time() - time.monotonic()
        for name, start, end in zip(("queue", "prefill", "decode"), moments, moments[1:], strict=False):
            if start is not None and end is not None:
                times = (round((epoch_s + start) * 1e9), round((epoch_s + end) * 1e9))
                told = events if name == "decode" else ()
                self._tracer.record(f"paceline.{name}", traceparent, *times, facts, told)
