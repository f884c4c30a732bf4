"""Idempotency keys: one client's request per (tenant, key) while it runs and for a while after."""

from collections import Counter, deque
from dataclasses import dataclass

from services.common.request.errors import Code, PacelineError, Reason

_RUNNING = float("inf")


@dataclass(frozen=True, slots=True)
class Claim:
    """A request's claim to a key; an empty key is never held.

    `owner` and `resumed` are those of `RequestSpec`; a claim without an owner matches no other. `uid` names the request
    on this target.
    """

    tenant: str
    key: str
    owner: str
    uid: int
    resumed: bool = False

    @property
    def name(self) -> tuple[str, str]:
        """The name of the key: no two owners may hold it at once."""
        return self.tenant, self.key


class KeyStore:
    """Holds keys while their request runs and `keep_s` seconds after, and those of requests that ended elsewhere.

    A named tenant holds at most `tenant_capacity` of the `capacity` keys. Callers without a name share one tenant,
    which may hold all. What is noted of other targets takes no room of these: of too many the oldest are forgotten.
    """

    def __init__(self, keep_s: float = 60.0, capacity: int = 65_536, tenant_capacity: int = 8_192) -> None:
        self._keep_s = keep_s
        self._capacity = capacity
        self._tenant_capacity = tenant_capacity
        self._count: Counter[str] = Counter()
        self._held: dict[tuple[str, str], tuple[Claim, float]] = {}
        self._ending: deque[tuple[float, tuple[str, str]]] = deque()
        self._noted: dict[tuple[str, str], tuple[Claim, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def check(self, claim: Claim, now: float) -> None:
        """Raises ALREADY_EXISTS/DUPLICATE when another owner holds the key."""
        self.sweep(now)
        holders = [held[0].owner for held in (self._held.get(claim.name), self._noted.get(claim.name)) if held]
        if any(owner != claim.owner or not owner for owner in holders):
            raise PacelineError(
                Code.ALREADY_EXISTS, Reason.DUPLICATE, "a request with this idempotency key is running or has ended"
            )

    def claim(self, claim: Claim, now: float) -> None:
        """Takes a key.

        A request that has output takes it from any holder, and runs without it when the store is full.

        Raises:
            PacelineError: DUPLICATE when another owner holds it, TENANT_LIMIT when the tenant holds its share,
                OVERLOADED when the store is full.
        """
        if not claim.key:
            return
        if not claim.resumed:
            self.check(claim, now)
        self.sweep(now)
        if claim.name not in self._held:
            full = self._full(claim.tenant)
            if full is not None and claim.resumed:
                return
            if full is not None:
                raise full
            self._count[claim.tenant] += 1
        self._held[claim.name] = claim, _RUNNING

    def release(self, claim: Claim, now: float) -> None:
        """Notes that the request of a claim has ended; its key is held for `keep_s` longer."""
        if self._runs(claim):
            until = now + self._keep_s
            self._held[claim.name] = claim, until
            self._ending.append((until, claim.name))

    def note(self, claim: Claim, now: float) -> None:
        """Keeps the key of a request that has ended on another target, which may leave before the time is over."""
        self.sweep(now)
        self._noted.pop(claim.name, None)
        self._noted[claim.name] = claim, now + self._keep_s
        if len(self._noted) > self._capacity:
            del self._noted[next(iter(self._noted))]

    def forget(self, claim: Claim) -> None:
        """Frees the key of a request that left without an end: it may be claimed again at once."""
        if self._runs(claim):
            self._drop(claim.name)

    def sweep(self, now: float) -> None:
        """Forgets keys whose time has passed."""
        while self._ending and self._ending[0][0] <= now:
            _, name = self._ending.popleft()
            if name in self._held and self._held[name][1] <= now:
                self._drop(name)
        while self._noted:
            name = next(iter(self._noted))
            if self._noted[name][1] > now:
                return
            del self._noted[name]

    def _drop(self, name: tuple[str, str]) -> None:
        tenant, _ = name
        del self._held[name]
        self._count[tenant] -= 1
        if not self._count[tenant]:
            del self._count[tenant]

    def _full(self, tenant: str) -> PacelineError | None:
        """Why there is no room for another key of a tenant."""
        if tenant and self._count[tenant] >= self._tenant_capacity:
            reason, message = Reason.TENANT_LIMIT, f"the tenant holds {self._tenant_capacity} idempotency keys already"
        elif len(self._held) >= self._capacity:
            reason, message = Reason.OVERLOADED, "too many idempotency keys"
        else:
            return None
        return PacelineError(Code.RESOURCE_EXHAUSTED, reason, message, retry_after_s=self._keep_s)

    def _runs(self, claim: Claim) -> bool:
        """Whether this request still holds its key: another one may have taken it over."""
        held = self._held.get(claim.name)
        return held is not None and held[0].uid == claim.uid and held[1] == _RUNNING
