"""What each tenant has over all gateways: they state it to a few targets, which add it up."""

from dataclasses import dataclass


@dataclass(slots=True)
class Used:
    """What one gateway stated of a tenant: requests, and tokens of the last minute."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    """Requests of one claim, by its number, of which the gateway may not have heard yet."""

    number: int
    requests: int
    tokens: int


@dataclass(slots=True)
class Stated:
    """What a session stated of a tenant, and what it was granted since."""

    used: Used
    granted: list[Granted]

    @property
    def requests(self) -> int:
        """Those that were stated or granted."""
        return self.used.requests + sum(one.requests for one in self.granted)

    @property
    def tokens(self) -> int:
        """The same of tokens."""
        return self.used.tokens + sum(one.tokens for one in self.granted)


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
        self._used: dict[str, dict[int, Stated]] = {}

    def __len__(self) -> int:
        """Tenants of which there are statements."""
        return len(self._used)

    def note(self, session: int, tenant: str, used: Used, heard: int | None = None) -> Standing:
        """Takes a statement in place of what the session said before.

        What was granted since the number that the gateway has `heard` counts beside it; None if it has heard of all.
        """
        of_tenant = self._used.setdefault(tenant, {})
        before = of_tenant.get(session)
        late = [one for one in before.granted if heard is not None and one.number > heard] if before else []
        of_tenant[session] = Stated(used, late)
        if not (used.requests or used.tokens or late):
            self._forget(session, tenant)
        return self._standing(of_tenant, True)

    def claim(self, session: int, tenant: str, claimed: Granted, most: Bounds) -> Standing:
        """Adds requests of one call and their tokens to what the session said before, if the bounds allow them all.

        A tenant without any token is let in whatever the call may need: else it could never run.
        """
        now = self._standing(self._used.get(tenant, {}), False)
        full = most.requests and now.requests + claimed.requests > most.requests
        spent = most.tokens and now.tokens and now.tokens + claimed.tokens > most.tokens
        if full or spent:
            return now
        of_tenant = self._used.setdefault(tenant, {})
        of_tenant.setdefault(session, Stated(Used(), [])).granted.append(claimed)
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
    def _standing(of_tenant: dict[int, Stated], granted: bool) -> Standing:
        known = of_tenant.values()
        return Standing(granted, sum(one.requests for one in known), sum(one.tokens for one in known))
