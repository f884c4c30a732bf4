"""What each tenant has over all gateways: they state it to a few targets, which add it up."""

from dataclasses import dataclass


@dataclass(slots=True)
class Used:
    """What one gateway stated of a tenant: requests, and tokens of the last minute."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a tenant may have over all gateways; 0 is no bound."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """All that a tenant has, and whether what was asked for is part of it."""

    granted: bool
    requests: int
    tokens: int


class Tally:
    """Statements of open sessions by tenant; those of a session that ends are forgotten."""

    def __init__(self) -> None:
        """Starts without statements."""
        self._used: dict[str, dict[int, Used]] = {}

    def __len__(self) -> int:
        """Tenants of which there are statements."""
        return len(self._used)

    def note(self, session: int, tenant: str, used: Used) -> Standing:
        """Takes a statement in place of what the session said before."""
        of_tenant = self._used.setdefault(tenant, {})
        of_tenant[session] = used
        if not (used.requests or used.tokens):
            self._forget(session, tenant)
        return self._standing(of_tenant, True)

    def claim(self, session: int, tenant: str, tokens: int, most: Bounds, requests: int = 1) -> Standing:
        """Adds requests of one call and their tokens to what the session said before, if the bounds allow them all.

        A tenant without any token is let in whatever the call may need: else it could never run.
        """
        of_tenant = self._used.setdefault(tenant, {})
        now = self._standing(of_tenant, False)
        full = most.requests and now.requests + requests > most.requests
        spent = most.tokens and now.tokens and now.tokens + tokens > most.tokens
        if full or spent:
            return now
        mine = of_tenant.setdefault(session, Used())
        mine.requests += requests
        mine.tokens += tokens
        return self._standing(of_tenant, True)

    def leave(self, session: int) -> None:
        """The session has ended."""
        for tenant in [tenant for tenant, known in self._used.items() if session in known]:
            self._forget(session, tenant)

    def _forget(self, session: int, tenant: str) -> None:
        of_tenant = self._used[tenant]
        of_tenant.pop(session, None)
        if not of_tenant:
            del self._used[tenant]

    @staticmethod
    def _standing(of_tenant: dict[int, Used], granted: bool) -> Standing:
        known = of_tenant.values()
        return Standing(granted, sum(one.requests for one in known), sum(one.tokens for one in known))
