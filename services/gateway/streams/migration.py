"""Runs one request over several targets: when one dies or drains, the next continues from prompt and committed tokens.

The same seed and positions give the same tokens wherever numerics are equal (invariant I1), so the client sees one
unbroken stream in which each position comes once. Where they are not, the end of the stream says so.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from services.common.metrics.catalogue import ModelMetrics
from services.common.request.errors import Code, PacelineError, Reason
from services.gateway.routing.routed_request import RoutedRequest, key_of
from services.gateway.routing.router import prefix_digests
from services.gateway.streams.journey import JourneySettings, Totals
from services.gateway.streams.tries import Tries
from services.gateway.targets.attempt import DELIVERED, Attempt, Outbox
from services.gateway.targets.messages import (
    Arithmetic,
    End,
    Lost,
    Refused,
    Speculation,
    Update,
    Usage,
)
from services.gateway.targets.pool import Pool

LAST_WORD_S = 1.0
"""Longest wait for the statistics that answer a cancellation."""


class MigratingRequest:
    """A request that may move between targets; one task at a time uses it."""

    def __init__(
        self,
        job: RoutedRequest,
        pool: Pool,
        settings: JourneySettings,
        metrics: ModelMetrics,
        on_overflow: Callable[[], None],
    ) -> None:
        """Nothing happens before the first `next`."""
        self.totals = Totals(Usage(), Speculation())
        self.revision = ""
        self._job = job
        self._pool = pool
        self._settings = settings
        self._metrics = metrics
        self._on_overflow = on_overflow
        self._digests = prefix_digests(job.prompt, job.tenant.salt + job.model.encode())
        self._committed: list[int] = []
        self._scored = 1
        self._present: Arithmetic | None = None
        self._origin: Arithmetic | None = None
        self._attempt: Attempt | None = None
        self._ended: Attempt | None = None
        self.pair_id = ""
        self._tries = Tries(job, settings.attempts, metrics)

    @property
    def placed(self) -> bool:
        """A target has the request, or had it."""
        return self._tries.made > 0

    async def next(self) -> Update:
        """The next tokens, the end, or both; `end` is Finished or None.

        Raises:
            PacelineError: the request was refused, or lost for good.
        """
        while True:
            attempt = self._attempt or await self._place()
            update = await attempt.next()
            if update.scores:
                update = update.scored_behind(self._scored)
                self._scored += len(update.scores)
            if update.token_ids:
                if self._origin is not self._present:
                    self._compare()
                self._committed += update.token_ids
            if update.end is None:
                return update
            self._attempt, self._ended = None, attempt
            self._count(attempt, update.end)
            end = self._tries.verdict(update.end, len(self._committed), self.totals)
            if end is not None or update.token_ids or update.scores:
                return update if end is update.end else replace(update, end=end)
            await self._tries.pause(update.end)

    async def stop(self, tokens_kept: int, reason: str) -> None:
        """Cancels on the target and waits a moment for its statistics; tokens beyond those kept are discarded."""
        attempt = self._release(tokens_kept, reason)
        if attempt is None:
            return
        try:
            async with asyncio.timeout(LAST_WORD_S):
                while (end := (await attempt.next()).end) is None:
                    pass
        except TimeoutError:
            end = Lost("no answer to the cancellation")
        self._count(attempt, end)

    def abandon(self, tokens_kept: int, reason: str, answered: bool = False) -> None:
        """Cancels on the target without waiting; the key of a request that is `answered` is kept by another pair, too.

        A target whose request has ended is told too, so that it settles its tokens at once.
        """
        if answered and self._job.key:
            self._pool.keep(self.pair_id, self._job)
        attempt = self._release(tokens_kept, reason)
        if attempt is not None:
            self.totals.add(Usage(), attempt.observed)

    def _release(self, tokens_kept: int, reason: str) -> Attempt | None:
        """Says how much was kept to the last target; gives its request if that runs."""
        running, self._attempt = self._attempt, None
        ended, self._ended = self._ended, None
        if running is not None:
            running.cancel(tokens_kept, reason)
        elif ended is not None:
            ended.cancel(tokens_kept, reason if tokens_kept < len(self._committed) else DELIVERED)
        return running

    async def _place(self) -> Attempt:
        """Finds a target and starts there."""
        if self._ended is not None:  # its client has all that came of it
            self._release(len(self._committed), DELIVERED)
        job = self._job
        key = key_of(job)
        while True:
            left_s = max(job.deadline - time.monotonic(), 0.0)
            avoid = {self.pair_id} if self.pair_id else ()
            # A little longer than the deadline: past it the stream reports the deadline itself, not a lack of targets.
            wait_s = min(left_s + 1.0, self._settings.wait_target_s)
            link = await self._pool.place(job.model, (self._digests, job.opening), key, avoid, self._origin, wait_s)
            if job.key and not self._committed:
                await self._pool.ask_others(link, job)
            outbox = Outbox(self._settings.outbox_tokens, self._on_overflow)
            left_s = max(job.deadline - time.monotonic(), 0.0)
            attempt = link.start(job, self._committed, left_s, outbox)
            if attempt is None or link.model is None:
                continue
            self.pair_id, self._present = link.pair_id, link.model.arithmetic
            self.revision = link.model.revision
            self._tries.made += 1
            self._attempt = attempt
            return attempt

    def _compare(self) -> None:
        """Notes whether the target whose tokens come computes otherwise than the one before."""
        before, self._origin = self._origin, self._present
        if before is not None and self._present is not None and before.numerics != self._present.numerics:
            self.totals.numerics_changed = True
            self._metrics.gateway_numerics_changes.inc()

    def _count(self, attempt: Attempt, end: End) -> None:
        if isinstance(end, Lost | Refused):
            self.totals.add(Usage(), attempt.observed)
        else:
            self.totals.add(end.usage, end.speculation)


def slow_client() -> PacelineError:
    """The client does not read its stream."""
    return PacelineError(Code.RESOURCE_EXHAUSTED, Reason.SLOW_CLIENT, "the client does not read its stream")
