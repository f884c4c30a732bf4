"""Idempotency keys: one generation per (tenant, key) while it runs and for a while after."""

from collections import Counter, deque

from services.common.errors import Code, PacelineError, Reason

_RUNNING = float("inf")


class KeyStore:
    """Holds keys while their request runs and `keep_s` seconds after; an empty key is never held.

    A named tenant holds at most `tenant_capacity` of the `capacity` keys. Callers without a name are one party and may
    hold them all.
    """

    def __init__(self, keep_s: float = 60.0, capacity: int = 65_536, tenant_capacity: int = 8_192) -> None:
        self._keep_s = keep_s
        self._capacity = capacity
        self._tenant_capacity = tenant_capacity
        self._held: Counter[str] = Counter()
        self._until: dict[tuple[str, str], float] = {}
        self._ending: deque[tuple[float, tuple[str, str]]] = deque()

    def __len__(self) -> int:
        return len(self._until)

    def claim(self, tenant: str, key: str, now: float) -> None:
        """Takes a key.

        Raises:
            PacelineError: DUPLICATE when it is held, TENANT_LIMIT when the tenant holds its share, OVERLOADED when the
                store is full.
        """
        if not key:
            return
        self.sweep(now)
        if (tenant, key) in self._until:
            raise PacelineError(
                Code.ALREADY_EXISTS, Reason.DUPLICATE, "a request with this idempotency key is running or has ended"
            )
        if tenant and self._held[tenant] >= self._tenant_capacity:
            raise self._full(Reason.TENANT_LIMIT, f"the tenant holds {self._tenant_capacity} idempotency keys already")
        if len(self._until) >= self._capacity:
            raise self._full(Reason.OVERLOADED, "too many idempotency keys")
        self._until[tenant, key] = _RUNNING
        self._held[tenant] += 1

    def release(self, tenant: str, key: str, now: float) -> None:
        """Says that the request of a key has ended; the key is held for a while longer."""
        if self._until.get((tenant, key)) == _RUNNING:
            self._until[tenant, key] = now + self._keep_s
            self._ending.append((now + self._keep_s, (tenant, key)))

    def forget(self, tenant: str, key: str) -> None:
        """Says that the request of a key left without an end: it may be asked for again at once."""
        if self._until.get((tenant, key)) == _RUNNING:
            self._drop((tenant, key))

    def sweep(self, now: float) -> None:
        """Forgets keys whose time has passed."""
        while self._ending and self._ending[0][0] <= now:
            self._drop(self._ending.popleft()[1])

    def _drop(self, held: tuple[str, str]) -> None:
        del self._until[held]
        self._held[held[0]] -= 1
        if not self._held[held[0]]:
            del self._held[held[0]]

    def _full(self, reason: Reason, message: str) -> PacelineError:
        return PacelineError(Code.RESOURCE_EXHAUSTED, reason, message, retry_after_s=self._keep_s)
