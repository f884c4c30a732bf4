"""How often a request is tried on targets, and what the end of an attempt means for it."""

import asyncio
import logging

from services.common.metrics.catalogue import ModelMetrics
from services.common.request.errors import Reason, unavailable
from services.common.request.sampling import FinishReason
from services.gateway.routing.routed_request import RoutedRequest
from services.gateway.streams.journey import Totals
from services.gateway.targets.messages import End, Finished, Lost, Moved, Refused

log = logging.getLogger(__name__)
TRY_ELSEWHERE = frozenset({Reason.OVERLOADED, Reason.DRAINING, Reason.NO_TARGET})


class Tries:
    """Attempts of one request, of which so many are `made`."""

    def __init__(self, job: RoutedRequest, most: int, metrics: ModelMetrics) -> None:
        self.made = 0
        self._failed = False
        self._job, self._most, self._metrics = job, most, metrics

    def verdict(self, end: End, committed: int, totals: Totals) -> Finished | None:
        """The end if the request is over; None when it continues on another target.

        Raises:
            PacelineError: it cannot go on.
        """
        if isinstance(end, Finished):
            return end
        if isinstance(end, Moved):
            self.made -= 1  # none has failed, and a rollout may drain one after the other
        if committed >= self._job.stopping.max_tokens:
            return Finished(FinishReason.LENGTH)
        full = isinstance(end, Refused) and end.error.reason in TRY_ELSEWHERE
        if self._exhausted or not (full or self._may_move(end, committed)):
            if isinstance(end, Refused):
                raise end.error
            self._metrics.gateway_migration_failures.inc()
            raise unavailable(Reason.TARGET_LOST, f"the target was lost: {_why(end)}")
        if not full:
            totals.migrations += 1
            self._metrics.gateway_migrations[_cause(end)].inc()
        log.info("request goes on elsewhere", extra={"data": {"cause": _why(end)}})
        return None

    def _may_move(self, end: Lost | Moved | Refused, committed: int) -> bool:
        """Whether a request that its target did not finish may be tried on another one.

        Only the first failure moves a request, so that a request that makes targets fail reaches no third one.
        """
        if isinstance(end, Refused):
            failed, self._failed = self._failed, True
            if failed or end.error.reason is not Reason.INTERNAL:
                return False
        return self._job.migration or not committed

    async def pause(self, end: End) -> None:
        """Waits before another attempt when all targets may be full."""
        if isinstance(end, Refused):
            await asyncio.sleep(min(end.error.retry_after_s or 0.05, 0.05 * 2**self.made, 1.0))

    @property
    def _exhausted(self) -> bool:
        return self.made >= self._most


def _cause(end: Lost | Moved | Refused) -> str:
    if isinstance(end, Moved):
        return "drain"
    return "failed" if isinstance(end, Refused) else "lost"


def _why(end: End) -> str:
    if isinstance(end, Lost):
        return end.why
    return end.error.message if isinstance(end, Refused) else "it drains"
