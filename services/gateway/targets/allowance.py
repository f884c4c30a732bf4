"""What tenants may have over all gateways: one target counts each tenant, and a request asks it before it starts.

Every gateway has a session with every target and finds the same one for a tenant, as it does for keys. So no gateway
has to know another. A gateway states what it has of a tenant, and the target adds up the statements of all sessions.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from services.common.request.errors import Code, PacelineError, Reason
from services.gateway.targets.link import Link
from services.gateway.targets.messages import Standing, Use
from services.gateway.targets.pool import Pool
from services.gateway.tenancy.admission import Room, Tenant
from services.gateway.tenancy.spending import Clock, Spending

ANSWER_S = 0.5
"""Longest wait for the target that counts; a share of the bounds holds where it does not answer."""

TELL_S = 1.0
"""Seconds between two statements of a tenant that was here within the last minute."""

FRESH_S = 2.5
"""How long what a target said of all gateways is believed."""

FIRST_ANSWER = 64
"""Tokens with which a tenant's answers are reckoned before any has ended."""


@dataclass(frozen=True, slots=True)
class Total:
    """What a tenant has over all gateways, as far as known: `frees_s` is when tokens come free."""

    requests: int
    tokens: int
    frees_s: float


def over_all(room: Room, tenant: Tenant, total: Total | None) -> Room:
    """What a tenant has left where the bounds over all gateways count too; `total` is what it has there."""
    if total is not None and tenant.most_requests:
        room = replace(room, requests=max(min(room.requests, tenant.most_requests - total.requests), 0))
    if not tenant.tokens_per_minute:
        return room
    used = total.tokens if total else 0
    left = max(tenant.tokens_per_minute - used, 0)
    return replace(
        room, most_tokens=tenant.tokens_per_minute, tokens=left, tokens_reset_s=total.frees_s if total else 0.0
    )


class Account:
    """One tenant at this gateway."""

    def __init__(self, tenant: Tenant, clock: Clock) -> None:
        """Starts without requests."""
        self.tenant = tenant
        self.running = 0
        self.spending = Spending(clock)
        self.expected = float(FIRST_ANSWER)
        self.home: Link | None = None
        self.seen: object = None
        self.others = Standing(0, True, 0, 0, 1)
        self.told_at = float("-inf")

    def heard(self, standing: Standing, own: Standing, now: float) -> None:
        """Notes what others have: all that the target knows less what it knows of this gateway."""
        requests, tokens = max(standing.requests - own.requests, 0), max(standing.tokens - own.tokens, 0)
        self.others, self.told_at = Standing(0, True, requests, tokens, standing.gateways), now


class Permit:
    """One request of a tenant that is bounded over all gateways."""

    def __init__(self, account: Account, prompt: int, answer: int, tell: Callable[[Account], None]) -> None:
        """Its prompt is spent, and of its answer as much is reserved as is to be expected."""
        self._account = account
        self._tell = tell
        self._left = answer
        self._answered = 0
        self._open = True
        account.spending.spend(prompt)
        account.spending.reserved += answer

    def spend(self, tokens: int) -> None:
        """So many tokens of the answer were sent."""
        spending = self._account.spending
        known = min(tokens, self._left)
        self._left -= known
        spending.reserved -= known
        spending.spend(tokens)
        self._answered += tokens

    def close(self) -> None:
        """The request has left; further calls do nothing."""
        if not self._open:
            return
        account, self._open = self._account, False
        account.running -= 1
        account.spending.reserved -= self._left
        account.expected += 0.2 * (self._answered - account.expected)
        self._tell(account)


class Allowance:
    """Accounts of all tenants that have bounds over all gateways."""

    def __init__(self, pool: Pool, clock: Clock = time.monotonic) -> None:
        """Starts without accounts."""
        self._pool = pool
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    async def enter(self, tenant: Tenant, prompt: int, most: int) -> Permit | None:
        """Lets a request in that has so many tokens of prompt, and of answer at most; None for a tenant without bounds.

        Raises:
            PacelineError: TENANT_LIMIT, with the time after which to retry.
        """
        if not tenant.bounded:
            return None
        account = self._account(tenant)
        answer = min(most, int(account.expected))
        home = self._home(account)  # a new one is told what there is, without this request
        account.running += 1
        try:
            why = await self._refusal(account, home, prompt + answer)
        except BaseException:
            account.running -= 1
            self._tell(account)
            raise
        if why:
            account.running -= 1
            self._tell(account)
            raise self._full(account, why, prompt + answer)
        return Permit(account, prompt, answer, self._tell)

    def total(self, tenant: Tenant) -> Total | None:
        """What a tenant has; None for one without bounds, or without an account."""
        account = self._accounts.get(tenant.name)
        if account is None or not tenant.bounded:
            return None
        known = account.others if self._fresh(account) else Standing(0, True, 0, 0, 1)
        tokens = known.tokens + account.spending.used
        return Total(known.requests + account.running, tokens, account.spending.frees_s(1))

    async def follow(self) -> None:
        """States every second what there is of tenants that were here within the last minute."""
        while True:
            await asyncio.sleep(TELL_S)
            for account in [*self._accounts.values()]:
                self._tell(account)
                if not (account.running or account.spending.used):
                    del self._accounts[account.tenant.name]

    async def _refusal(self, account: Account, home: Link | None, tokens: int) -> str:
        """What bound a request would break; empty where it may run."""
        lone = self._fresh(account) and account.others.gateways <= 1
        if home is None or lone:
            return self._broken(account, tokens, 1 if lone else account.others.gateways)
        spending, tenant = account.spending, account.tenant
        own = Standing(0, True, account.running, spending.used + tokens, 1)
        use = Use(
            tenant.name,
            account.running - 1,
            spending.used,
            True,
            tokens,
            tenant.most_requests,
            tenant.tokens_per_minute,
        )
        standing = await self._stated(home, use)
        if standing is None:
            return self._broken(account, tokens, account.others.gateways)
        if standing.granted:
            account.heard(standing, own, self._clock())
            return ""
        return "requests" if tenant.most_requests and standing.requests >= tenant.most_requests else "tokens a minute"

    def _broken(self, account: Account, tokens: int, gateways: int) -> str:
        """The same by this gateway's own part of the bounds."""
        tenant, used = account.tenant, account.spending.used
        if tenant.most_requests and account.running > -(-tenant.most_requests // gateways):
            return "requests"
        spent = used and used + tokens > tenant.tokens_per_minute // gateways
        return "tokens a minute" if tenant.tokens_per_minute and spent else ""

    def _tell(self, account: Account) -> None:
        """States what there is of a tenant; the answer is noted when it comes."""
        home = self._home(account)
        if home is None:
            return
        use = Use(account.tenant.name, account.running, account.spending.used)
        answer = home.state(use)
        if answer is not None:
            answer.add_done_callback(lambda done: self._noted(account, use, done))

    def _noted(self, account: Account, use: Use, done: "asyncio.Future[Standing | None]") -> None:
        standing = None if done.cancelled() else done.result()
        if standing is not None:
            account.heard(standing, Standing(0, True, use.requests, use.tokens, 1), self._clock())

    async def _stated(self, home: Link, use: Use) -> Standing | None:
        answer = home.state(use)
        if answer is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return None

    def _account(self, tenant: Tenant) -> Account:
        account = self._accounts.get(tenant.name)
        if account is None:
            account = self._accounts[tenant.name] = Account(tenant, self._clock)
        account.tenant = tenant
        return account

    def _home(self, account: Account) -> Link | None:
        """The target that counts a tenant; one that is new to it hears at once what there is."""
        seen = self._pool.change()
        if account.seen is not seen:
            account.seen = seen
            found = self._pool.counting.homes(f"tenant\0{account.tenant.name}".encode(), 1)
            home = found[0] if found else None
            if home is not account.home:
                account.home, account.told_at = home, float("-inf")
                self._tell(account)
        return account.home

    def _fresh(self, account: Account) -> bool:
        return self._clock() - account.told_at < FRESH_S

    def _full(self, account: Account, what: str, tokens: int) -> PacelineError:
        text = f"the tenant's limit of {what} over all gateways is reached"
        spare = account.tenant.tokens_per_minute - account.spending.used
        wait_s = 1.0 if what == "requests" else account.spending.frees_s(max(tokens - spare, 1))
        return PacelineError(Code.RESOURCE_EXHAUSTED, Reason.TENANT_LIMIT, text, retry_after_s=wait_s)
