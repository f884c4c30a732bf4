"""What tenants may have over all gateways: a few targets count each tenant, and a call asks them before it starts.

Every gateway has a session with every target and finds the same few for a tenant, as it does for keys. So no gateway
has to know another. A gateway states what it has of a tenant, and each of these targets adds up what its sessions
stated. The first is enough while all gateways reach it. Where some do not, all of the few are asked: as long as one of
them is reached by every gateway, it knows every request and has let it in.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from services.common.request.errors import Code, PacelineError, Reason
from services.gateway.targets.account import Account, Claim, Permit
from services.gateway.targets.link import Link
from services.gateway.targets.messages import Standing, Use
from services.gateway.targets.pool import Pool
from services.gateway.tenancy.admission import Room, Tenant
from services.gateway.tenancy.spending import Clock

ANSWER_S = 0.5
"""Longest wait for a target that counts; a share of the bounds holds where none of them answers."""

TELL_S = 1.0
"""Seconds between two statements of a tenant that was here within the last minute."""

SOON_S = 0.05
"""What no gateway waits for is stated so late, for many requests together."""

LEAST_S = 0.001
"""Shortest wait: what is left may be less than the clock tells."""

COUNTING = 3
"""Targets that count a tenant: bounds hold while fewer than these are missed by some gateway."""


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


class Allowance:
    """Accounts of all tenants that have bounds over all gateways."""

    def __init__(self, pool: Pool, clock: Clock = time.monotonic) -> None:
        """Starts without accounts."""
        self._pool = pool
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._numbers = itertools.count(1)

    async def enter(self, tenant: Tenant, prompts: Sequence[int], most: int) -> list[Permit]:
        """Lets the answers of a call in, all or none; no permits for a tenant without bounds.

        Args:
            tenant: whose call it is.
            prompts: for each answer tokens of its prompt, as far as they are known; 0 where another one has them.
            most: most tokens of an answer.

        Raises:
            PacelineError: TENANT_LIMIT, with the time after which to retry.
        """
        if not tenant.bounded:
            return []
        account = self._account(tenant)
        answer = min(most, int(account.expected))
        await self._known(account)
        permits = [Permit(account, prompt, answer, self._tell) for prompt in prompts]
        why: str | None = None
        try:
            why = await self._refusal(account, permits)
        finally:
            if why != "":
                for permit in permits:
                    permit.withdraw()
                self._tell(account)
        if why:
            raise self._full(account, why, sum(prompts) + answer * len(prompts))
        return permits

    def total(self, tenant: Tenant) -> Total | None:
        """What a tenant has; None for one without bounds, or without an account."""
        account = self._accounts.get(tenant.name)
        if account is None or not tenant.bounded:
            return None
        requests, tokens = account.others()
        return Total(requests + account.running, tokens + account.spending.used, account.spending.frees_s(1))

    async def follow(self) -> None:
        """States every second what there is of tenants that were here within the last minute."""
        while True:
            await asyncio.sleep(TELL_S)
            for account in [*self._accounts.values()]:
                self._find(account)
                self._state(account, account.homes)
                if not account.used:
                    del self._accounts[account.tenant.name]

    async def _known(self, account: Account) -> None:
        """Finds the targets that count, and waits until they know of other gateways and these of this one.

        Others hear that a gateway is there, and ask where it asks. One that has begun waits for that once, and one that
        lost a target waits for what others let in by that one.
        """
        self._find(account)  # a new one is told what there is, without the call that waits
        while (wait_s := account.unknown_s(2 * SOON_S)) > 0:
            account.waiting += 1
            try:
                await asyncio.sleep(max(wait_s, LEAST_S))
            finally:
                account.waiting -= 1
            self._find(account)

    async def _refusal(self, account: Account, permits: Sequence[Permit]) -> str:
        """What bound the answers would break; empty where they may run.

        The first target decides among the gateways that reach it: of two calls one has the last place. The others are
        asked where some gateway may not reach it.
        """
        lone, tokens = account.lone, sum(permit.tokens for permit in permits)
        if lone or not account.homes:
            self._tell(account)
            return self._broken(account, tokens, 1 if lone else account.gateways)
        claim = Claim(account, permits)
        try:
            return await self._claimed(account, claim)
        finally:
            claim.end()

    async def _claimed(self, account: Account, claim: Claim) -> str:
        first, later = account.homes[:1], account.homes[1:]
        answers = await self._asked(account, first, claim)
        why = _why(account.tenant, answers, claim.requests)
        if not why and not (answers and account.agreed):
            answers += await self._asked(account, later, claim)
            why = _why(account.tenant, answers, claim.requests)
        elif not why:
            self._soon(account)
        return why if answers else self._broken(account, claim.tokens, account.gateways)

    async def _asked(self, account: Account, homes: Sequence[Link], claim: Claim) -> list[Standing]:
        """What targets answer to a claim; those that do not are left out."""
        asked = [answer for home in homes if (answer := self._ask(account, home, claim)) is not None]
        if asked:
            await asyncio.wait(asked, timeout=ANSWER_S)
        return [standing for answer in asked if answer.done() and (standing := answer.result()) is not None]

    def _ask(self, account: Account, home: Link, claim: Claim) -> "asyncio.Future[Standing | None] | None":
        tenant, (requests, tokens) = account.tenant, account.own(home)
        bounds = (tenant.most_requests, tenant.tokens_per_minute)
        use = self._use(account, home, claim.requests, claim.tokens, *bounds)
        return self._sent(account, home, use, (requests + claim.requests, tokens + claim.tokens), claim)

    def _use(self, account: Account, home: Link, *claimed: int) -> Use:
        return Use(next(self._numbers), account.last(home), account.tenant.name, *account.own(home), *claimed)

    def _sent(
        self, account: Account, home: Link, use: Use, own: tuple[int, int], claim: Claim | None = None
    ) -> "asyncio.Future[Standing | None] | None":
        """States something; the answer is noted as it comes, before whoever waits for it goes on."""
        answer = home.state(use)
        if answer is not None:
            answer.add_done_callback(partial(self._noted, account, home, own, claim))
        return answer

    def _broken(self, account: Account, tokens: int, gateways: int) -> str:
        """What this gateway's own part of the bounds forbids."""
        tenant, before = account.tenant, account.spending.used - tokens
        if tenant.most_requests and account.running > -(-tenant.most_requests // gateways):
            return "requests"
        spent = before and before + tokens > tenant.tokens_per_minute // gateways
        return "tokens a minute" if tenant.tokens_per_minute and spent else ""

    def _tell(self, account: Account) -> None:
        """States what there is of a tenant, at once where another gateway may wait for it."""
        if account.agreed:
            self._state(account, account.homes[: 0 if account.lone else 1])
            self._soon(account)
        else:
            self._state(account, account.homes)

    def _soon(self, account: Account) -> None:
        """States it a little later where nothing hurries, once for all that happens until then."""
        if not account.telling:
            account.telling = True
            asyncio.get_running_loop().call_later(SOON_S, self._told, account)

    def _told(self, account: Account) -> None:
        account.telling = False
        self._state(account, account.homes)

    def _state(self, account: Account, homes: Sequence[Link]) -> None:
        """States what there is; the answers are noted when they come."""
        for home in homes:
            self._sent(account, home, self._use(account, home), account.own(home))

    @staticmethod
    def _noted(
        account: Account,
        home: Link,
        own: tuple[int, int],
        claim: Claim | None,
        done: "asyncio.Future[Standing | None]",
    ) -> None:
        standing = None if done.cancelled() else done.result()
        if standing is not None:
            account.heard(home, standing, own)
            if claim is not None and standing.granted:
                claim.granted(home)

    def _account(self, tenant: Tenant) -> Account:
        account = self._accounts.get(tenant.name)
        if account is None:
            account = self._accounts[tenant.name] = Account(tenant, self._clock)
        account.tenant = tenant
        return account

    def _find(self, account: Account) -> None:
        """Finds the targets that count a tenant; those that are new to it hear at once what there is."""
        seen = self._pool.change()
        if account.seen is seen:
            return
        account.seen = seen
        homes = tuple(self._pool.counting.homes(f"tenant\0{account.tenant.name}".encode(), COUNTING))
        if homes != account.homes:
            account.moved(homes)
            self._state(account, homes)

    def _full(self, account: Account, what: str, tokens: int) -> PacelineError:
        text = f"the tenant's limit of {what} over all gateways is reached"
        spare = account.tenant.tokens_per_minute - account.spending.used
        wait_s = 1.0 if what == "requests" else account.spending.frees_s(max(tokens - spare, 1))
        return PacelineError(Code.RESOURCE_EXHAUSTED, Reason.TENANT_LIMIT, text, retry_after_s=wait_s)


def _why(tenant: Tenant, answers: Sequence[Standing], requests: int) -> str:
    """The bound for which one of the targets has refused so many requests."""
    for standing in answers:
        if not standing.granted:
            full = tenant.most_requests and standing.requests + requests > tenant.most_requests
            return "requests" if full else "tokens a minute"
    return ""
