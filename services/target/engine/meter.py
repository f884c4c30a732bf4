"""The engine's metrics: rounds, requests, tokens, load, and whether a drafter's first rounds say that it fits."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from itertools import chain
from operator import attrgetter

from services.common.metrics.catalogue import KV_STATES, ROUND_FAILED, TargetMetrics
from services.common.request.errors import PacelineError, Reason
from services.target.cache.blocks import BlockPool
from services.target.core.load import Load
from services.target.core.plan import Commit
from services.target.core.request import Request
from services.target.engine.ledger import TokenLedger
from services.target.engine.recorder import RoundEntry
from services.target.engine.spans import Spans

_LOG = logging.getLogger(__name__)
_PATH, _CHILDREN = attrgetter("path"), attrgetter("children")
ROUNDS, LEAST = 64, 0.05
"""Rounds with drafts, and the share of them that is accepted at least: a drafter that reads the model has far more."""
REMEDY = "drafts are hardly ever right: is the drafter this model's, and does its anchor predict (sample_from_anchor)?"


class FirstRounds:
    """Counts drafts of each attachment until it is judged; drafts without a checkpoint are not."""

    def __init__(self, reads: bool) -> None:
        """`reads` says that the drafter has a checkpoint that reads the model."""
        self._reads = reads
        self._generation = self._rounds = self._drafted = self._accepted = 0

    def note(self, generation: int, drafted: int, accepted: int) -> None:
        """A round with so many drafts in all, of which so many were right."""
        if generation != self._generation:
            self._generation, self._rounds, self._drafted, self._accepted = generation, 0, 0, 0
        if not (self._reads and drafted) or self._rounds == ROUNDS:
            return
        self._rounds += 1
        self._drafted += drafted
        self._accepted += accepted
        if self._rounds == ROUNDS and self._accepted < LEAST * self._drafted:
            told = {"generation": generation, "drafted": self._drafted, "accepted": self._accepted}
            _LOG.warning(REMEDY, extra=told)


class Meter:
    """Counts what the engine does; every method is called on the engine's thread."""

    def __init__(
        self,
        metrics: TargetMetrics,
        ledger: TokenLedger,
        pool: BlockPool,
        spans: Spans | None = None,
        first_rounds: FirstRounds | None = None,
    ) -> None:
        """Counts from zero; ``spans`` is told of every round and every end, ``first_rounds`` of every draft."""
        self._spans, self._first_rounds, self._generation = spans, first_rounds, 0
        self._left: list[tuple[Request, str]] = []
        self._levels: tuple[Load, int, tuple[int, int, int]] | None = None
        self._metrics = metrics
        self._ledger = ledger
        self._pool = pool
        self._free, self._owned, self._cached = (metrics.kv_blocks[state] for state in KV_STATES)
        self._committed = self._emitted = 0
        self._discarded = dict.fromkeys(ledger.discarded, 0)

    def round(self, entry: RoundEntry, commit: Commit) -> None:
        """Counts one round."""
        metrics = self._metrics
        metrics.rounds[entry.width].inc()
        metrics.adaptive_width.set(entry.width)
        if entry.nodes:
            metrics.tree_rounds[entry.width].inc()
        if entry.fallback:
            metrics.fallback_rounds[entry.fallback].inc()
        if entry.width > 1:
            self._speculation(entry, commit)
        metrics.verify_seconds.observe(entry.verify_us / 1e6)
        metrics.host_seconds.observe(entry.host_us / 1e6)
        metrics.round_seconds.observe((entry.draft_us + entry.verify_us + entry.host_us) / 1e6)
        if self._spans is not None:
            self._spans.round(entry, commit)
            for request, reason in self._left:
                self._spans.ended(request, reason)
        self._left.clear()

    def failed_round(self) -> None:
        """Counts a round that raised."""
        self._metrics.fallback_rounds[ROUND_FAILED].inc()

    def ended(self, request: Request, reason: str, in_round: bool = False) -> None:
        """Counts a request that left; spans hear of one that its round has ended after they have heard of the round."""
        if in_round:
            self._left.append((request, reason))
        elif self._spans is not None:
            self._spans.ended(request, reason)
        metrics = self._metrics
        metrics.requests[reason].inc()
        if reason == "error":
            metrics.errors.inc()
        if request.admitted is None:
            return
        metrics.prompt_tokens.inc(request.spec.prompt_length)
        metrics.cached_prompt_tokens.inc(request.cached_tokens)
        metrics.preemptions.inc(request.preemptions)
        metrics.queue_seconds.observe(request.admitted - request.arrived)
        if request.first_token is not None:
            metrics.prefill_seconds.observe(request.first_token - request.admitted)

    def refused(self, error: PacelineError) -> None:
        """Counts a request that never ran."""
        self._metrics.rejects[error.reason.value].inc()
        if error.reason is Reason.INTERNAL:
            self._metrics.errors.inc()

    def levels(self, load: Load, generation: int) -> None:
        """Sets the gauges, if one of them has changed, and brings the token counters up to date."""
        metrics, levels = self._metrics, (load, generation, self._pool.levels)
        if levels == self._levels:
            self.tokens()
            return
        self._levels = levels
        metrics.running_requests.set(load.running)
        metrics.waiting_requests.set(load.waiting)
        metrics.queued_tokens.set(load.queued_tokens)
        metrics.slots.set(load.slots)
        free, owned, idle = levels[2]
        self._free.set(free)
        self._owned.set(owned)
        self._cached.set(idle)
        metrics.drafter_attached.set(generation > 0)
        metrics.attachment_generation.set(generation)
        self._generation = generation
        self.tokens()

    def tokens(self) -> None:
        """Brings the token counters up to date with the ledger."""
        ledger, metrics = self._ledger, self._metrics
        metrics.committed_tokens.inc(ledger.committed - self._committed)
        if ledger.emitted != self._emitted:
            metrics.emitted_tokens.inc(ledger.emitted - self._emitted)
        for reason, count in ledger.discarded.items():
            if count != self._discarded[reason]:
                metrics.discarded_tokens[reason].inc(count - self._discarded[reason])
                self._discarded[reason] = count
        self._committed, self._emitted = ledger.committed, ledger.emitted

    def _speculation(self, entry: RoundEntry, commit: Commit) -> None:
        metrics = self._metrics
        if self._first_rounds is not None:
            self._first_rounds.note(self._generation, entry.drafted, entry.accepted)
        metrics.spec_decode_num_drafts.inc(entry.requests)
        metrics.spec_decode_num_draft_tokens.inc(entry.drafted)
        # Counts as requests were told them: drafts beyond the end of a request matched, but were not committed.
        accepted = [progress.accepted for progress in commit.progress]
        metrics.spec_decode_num_accepted_tokens.inc(sum(accepted))
        metrics.speculative_seconds.inc(commit.round_us / 1e6)
        metrics.plain_equivalent_seconds.inc(commit.plain_us / 1e6)
        metrics.draft_wait_seconds.observe(entry.draft_us / 1e6)
        accepted.sort()
        for position in range(accepted[-1] if accepted else 0):
            further = len(accepted) - bisect_right(accepted, position)
            metrics.spec_decode_num_accepted_tokens_per_pos[position].inc(further)
        if entry.nodes:
            for name, each in ((metrics.accepted_nodes, _PATH), (metrics.accepted_children, _CHILDREN)):
                for place, count in Counter(chain.from_iterable(map(each, commit.progress))).items():
                    name[place].inc(count)
