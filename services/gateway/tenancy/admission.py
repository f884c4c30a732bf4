"""Decides whether a request is admitted, before its prompt is tokenised; pure, with the clock handed in."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from services.common.request.errors import Code, PacelineError, Reason, overloaded
from services.common.request.limits import LIMITS

UNBOUNDED = 2**31
"""Requests of a tenant for which nothing is stated."""

BYTES_PER_TOKEN = 3
"""Bytes of text counted as one token until the tokeniser has the exact number; low, so that estimates are high."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Most admitted requests, and most prompt tokens that wait for their first output token."""

    requests: int
    queued_tokens: int


@dataclass(frozen=True, slots=True)
class Room:
    """What a tenant may have and what is left of it.

    `reset_s` is the time in which a request leaves, `tokens_reset_s` that in which tokens come free, where it differs.
    """

    most_requests: int
    most_tokens: int
    requests: int
    tokens: int
    reset_s: float
    tokens_reset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant; `salt` separates prefix caches, `bound` is the tenant's own (None: only the gateway's).

    `priority` is the highest that its requests may state; without tenants only the contract's limit holds. Over all
    gateways it has at most `bound.requests` at once, and `tokens_per_minute`; 0 is no bound.
    """

    name: str = ""
    salt: bytes = b""
    bound: Bound | None = None
    priority: int = LIMITS.priority
    tokens_per_minute: int = 0

    @property
    def most_requests(self) -> int:
        """Most requests at once over all gateways; 0 where there is no bound."""
        return 0 if self.bound is None or self.bound.requests >= UNBOUNDED else self.bound.requests

    @property
    def bounded(self) -> bool:
        """It has a bound that holds over all gateways."""
        return bool(self.most_requests or self.tokens_per_minute)


def estimated_tokens(text_bytes: int) -> int:
    """Tokens of a text by its size."""
    return -(-text_bytes // BYTES_PER_TOKEN)


class Ticket:
    """An admitted request; the first `close` counts, further ones do nothing."""

    def __init__(self, admission: "Admission", tenant: Tenant, since: float) -> None:
        """Made by Admission.enter."""
        self._admission = admission
        self._tenant = tenant
        self._tokens = 0
        self._since = since
        self._open = True

    def queue(self, tokens: int) -> None:
        """Counts the prompt as one that waits for its first output token.

        A prompt that alone exceeds a bound is let in while no other prompt of its tenant waits. When others fill the
        gateway's bound, a tenant is let in up to an equal share of it.

        Raises:
            PacelineError: OVERLOADED or TENANT_LIMIT, with the time after which to retry.
        """
        self._admission.check_tokens(self._tenant, tokens)
        self.settle(tokens)

    def settle(self, tokens: int) -> None:
        """Replaces the estimate by the exact number of prompt tokens."""
        if self._open:
            self._admission.shift(self._tenant, 0, tokens - self._tokens)
            self._tokens = tokens

    def started(self) -> None:
        """Notes the first output token: the prompt no longer counts as waiting."""
        self.settle(0)

    def close(self) -> None:
        """Notes that the request has left."""
        if self._open:
            self._admission.shift(self._tenant, -1, -self._tokens)
            self._admission.observe(self._since)
            self._open = False


class Admission:
    """Counts requests and queued prompt tokens, in all and by tenant."""

    def __init__(self, bound: Bound, clock: Callable[[], float]) -> None:
        """Starts empty; `clock` gives seconds."""
        self._bound = bound
        self._clock = clock
        self._requests: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._mean_s = 1.0
        self.requests = 0
        self.queued_tokens = 0

    def enter(self, tenant: Tenant) -> Ticket:
        """Admits a request; its prompt need not be known yet.

        Raises:
            PacelineError: OVERLOADED or TENANT_LIMIT, with the time after which to retry.
        """
        if self.requests >= self._bound.requests:
            raise self._full()
        if tenant.bound and self._requests[tenant.name] >= tenant.bound.requests:
            raise self._tenant_full("requests")
        self.shift(tenant, 1, 0)
        return Ticket(self, tenant, self._clock())

    def room(self, tenant: Tenant) -> Room:
        """What a tenant has left of its own and the gateway's bounds, without telling of others."""
        own = tenant.bound or self._bound
        requests = min(own.requests, self._bound.requests)
        tokens = min(own.queued_tokens, self._bound.queued_tokens)
        left = max(requests - self._requests[tenant.name], 0), max(tokens - self._tokens[tenant.name], 0)
        return Room(requests, tokens, *left, self._retry_after())

    def check_tokens(self, tenant: Tenant, tokens: int) -> None:
        """Refuses a prompt for which there is no room; for tickets."""
        own = self._tokens[tenant.name]
        if not own:
            return
        if self.queued_tokens + tokens > self._bound.queued_tokens and own + tokens > self._share():
            raise self._full()
        if tenant.bound and own + tokens > tenant.bound.queued_tokens:
            raise self._tenant_full("queued prompt tokens")

    def _share(self) -> int:
        """Prompt tokens that each tenant with waiting ones may have whatever others have."""
        return self._bound.queued_tokens // max(sum(map(bool, self._tokens.values())), 1)

    def shift(self, tenant: Tenant, requests: int, tokens: int) -> None:
        """Moves the counts; for tickets."""
        self.requests += requests
        self.queued_tokens += tokens
        self._requests[tenant.name] += requests
        self._tokens[tenant.name] += tokens
        if not self._requests[tenant.name]:
            del self._requests[tenant.name], self._tokens[tenant.name]

    def observe(self, since: float) -> None:
        """Learns how long requests stay; for tickets."""
        self._mean_s += 0.1 * (self._clock() - since - self._mean_s)

    def _full(self) -> PacelineError:
        return overloaded("the gateway is full", self._retry_after())

    def _tenant_full(self, what: str) -> PacelineError:
        text = f"the tenant's limit of {what} is reached"
        return PacelineError(Code.RESOURCE_EXHAUSTED, Reason.TENANT_LIMIT, text, retry_after_s=self._retry_after())

    def _retry_after(self) -> float:
        """The time in which one of the requests inside leaves on average."""
        return min(max(self._mean_s / max(self.requests, 1), 0.1), 30.0)
