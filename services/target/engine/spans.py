"""Spans of requests and of their rounds, for traces that the client asked to be sampled."""

from __future__ import annotations

import time

from services.common.serving.tracing import Attributes, Tracer, sampled
from services.target.core.plan import Commit
from services.target.core.request import Request
from services.target.engine.recorder import RoundEntry


class Spans:
    """Records spans of past work, on the engine's thread; an inactive tracer costs one comparison a round."""

    def __init__(self, tracer: Tracer) -> None:
        """Records into ``tracer``."""
        self._tracer = tracer

    def round(self, entry: RoundEntry, commit: Commit) -> None:
        """One span for each sampled request that the round moved."""
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
                round_ = self._tracer.record("paceline.round", traceparent, start_ns, end_ns, facts)
                self._steps(round_, start_ns, entry)

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
                self._tracer.record(f"paceline.{name}", traceparent, *times, facts)
