"""Lets calls of tenants in: each has a place, and what is claimed by a key runs once."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.errors import Code, PacelineError, Reason
from services.gateway.intake.query import Query
from services.gateway.streams.keys import RunningKeys
from services.gateway.targets.account import Permit
from services.gateway.targets.allowance import Allowance, over_all
from services.gateway.tenancy.admission import Admission, Room, Ticket
from services.gateway.tenancy.auth import current_tenant


class Entrance:
    """What the present tenant may run here, and over all gateways."""

    def __init__(self, admission: Admission, metrics: GatewayMetrics, allowance: Allowance) -> None:
        """Nobody is inside yet."""
        self._admission, self._metrics, self._allowance = admission, metrics, allowance
        self._keys = RunningKeys()

    @contextmanager
    def admitted(self) -> Iterator[Ticket]:
        """A place inside for the present tenant while the block runs.

        Raises:
            PacelineError: OVERLOADED or TENANT_LIMIT.
        """
        ticket = self._admission.enter(current_tenant())
        self._metrics.gateway_inflight_requests.set(self._admission.requests)
        try:
            yield ticket
        finally:
            ticket.close()
            self._metrics.gateway_inflight_requests.set(self._admission.requests)

    def room(self) -> Room:
        """What the present tenant may have, and what is left of it over all gateways."""
        tenant = current_tenant()
        return over_all(self._admission.room(tenant), tenant, self._allowance.total(tenant))

    def check_fits(self, answers: int) -> None:
        """Refuses a call that could never run, without a time after which to ask again.

        Raises:
            PacelineError: TENANT_LIMIT, more answers at once than the present tenant may have.
        """
        most = self._admission.room(current_tenant()).most_requests
        if answers > max(most, 1):
            text = f"the call asks for {answers} answers at once, and at most {most} may run"
            raise PacelineError(Code.RESOURCE_EXHAUSTED, Reason.TENANT_LIMIT, text)

    async def permits(self, prompts: Sequence[int], most_tokens: int) -> list[Permit]:
        """Lets answers to prompts of so many tokens in over all gateways, all or none.

        None where the tenant has no bounds there.

        Raises:
            PacelineError: TENANT_LIMIT.
        """
        return await self._allowance.enter(current_tenant(), prompts, most_tokens)

    def claimed(self, query: Query) -> AbstractContextManager[None]:
        """Holds the query's idempotency key while the block runs.

        Raises:
            PacelineError: DUPLICATE.
        """
        return self._keys.held(current_tenant().name, query.key)
