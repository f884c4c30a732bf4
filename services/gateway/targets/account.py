"""What one tenant has at this gateway, and what targets said of the others."""

from collections.abc import Callable
from dataclasses import dataclass

from services.gateway.targets.link import Link
from services.gateway.targets.messages import Standing
from services.gateway.tenancy.admission import Tenant
from services.gateway.tenancy.spending import Clock, Spending

FRESH_S = 2.5
"""How long what a target said of all gateways is believed."""

FIRST_ANSWER = 64
"""Tokens with which a tenant's answers are reckoned before any has ended."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What other gateways had at one of the targets that count, how many gateways it knew, and when it said so."""

    requests: int
    tokens: int
    gateways: int
    at: float


class Account:
    """One tenant at this gateway; `homes` are the targets that count it, first the one that is asked first.

    Of `unsaid` and `unsaid_tokens` only the first has heard yet: they are part of `running` and `spending`.
    `telling` says that a statement is on its way.
    """

    def __init__(self, tenant: Tenant, clock: Clock) -> None:
        """Starts without requests."""
        self.tenant = tenant
        self.running = self.waiting = 0
        self.spending = Spending(clock)
        self.unsaid = 0
        self.unsaid_tokens = 0
        self.expected = float(FIRST_ANSWER)
        self.homes: tuple[Link, ...] = ()
        self.seen: object = None
        self.gateways = 1
        self.telling = False
        self._moved_at = float("-inf")
        self._heard: dict[Link, Heard] = {}
        self._clock = clock

    @property
    def used(self) -> bool:
        """A call of the tenant runs or waits, or ran within the last minute."""
        return bool(self.running or self.waiting or self.spending.used)

    def own(self, home: Link) -> tuple[int, int]:
        """Requests and tokens of this gateway that a target is to know of."""
        if not self.homes or home is self.homes[0]:
            return self.running, self.spending.used
        return self.running - self.unsaid, self.spending.used - self.unsaid_tokens

    def heard(self, home: Link, standing: Standing, own: tuple[int, int]) -> None:
        """Notes what others have: all that the target knows less what it knows of this gateway."""
        requests, tokens = max(standing.requests - own[0], 0), max(standing.tokens - own[1], 0)
        self._heard[home] = Heard(requests, tokens, standing.gateways, self._clock())
        self.gateways = max(one.gateways for one in self._heard.values())

    def moved(self, homes: tuple[Link, ...]) -> None:
        """Others count it from now on."""
        if self.homes:
            self._moved_at = self._clock()
        self.homes = homes
        self._heard = {home: heard for home, heard in self._heard.items() if home in homes}

    def others(self) -> Heard:
        """The most that a target has said of other gateways lately."""
        heard = [one for one in self._heard.values() if self._fresh(one)]
        requests = max((one.requests for one in heard), default=0)
        return Heard(requests, max((one.tokens for one in heard), default=0), self.gateways, self._clock())

    def unknown_s(self, joined_s: float, moved_s: float) -> float:
        """Seconds until a target that counts has known this gateway for so long, and those that do now did so long."""
        if not self.homes:
            return 0.0
        joins_s = joined_s - max(home.open_s for home in self.homes)
        return max(joins_s, self._moved_at + moved_s - self._clock())

    def hold(self, requests: int, tokens: int) -> None:
        """So many more, or fewer, are asked for at the first target, and later ones have not heard of them."""
        self.unsaid += requests
        self.unsaid_tokens += tokens

    @property
    def lone(self) -> bool:
        """No target that counts knows another gateway."""
        return self.agreed and self.gateways <= 1

    @property
    def agreed(self) -> bool:
        """All that count know as many gateways, so none of these is at the later ones alone."""
        heard = [self._heard.get(home) for home in self.homes]
        known = {one.gateways for one in heard if one is not None and self._fresh(one)}
        return len(known) == 1 and all(one is not None and self._fresh(one) for one in heard)

    def _fresh(self, heard: Heard) -> bool:
        return self._clock() - heard.at < FRESH_S


class Permit:
    """One answer of a tenant that is bounded over all gateways; it counts from the moment at which it asks to run."""

    def __init__(self, account: Account, prompt: int, answer: int, left: Callable[[Account], None]) -> None:
        """Its prompt, as far as it is known, and of its answer as much as is to be expected are reserved."""
        self._account = account
        self._left = left
        self._prompt = prompt
        self._reserved = answer
        self._answered = 0
        self._open = True
        account.running += 1
        account.spending.reserved += prompt + answer

    @property
    def tokens(self) -> int:
        """Those that it is reckoned with."""
        return self._prompt + self._reserved

    def begin(self, prompt: int) -> None:
        """Its prompt has so many tokens, and they are used now."""
        self._account.spending.reserved -= self._prompt
        self._account.spending.spend(prompt)
        self._prompt = 0

    def spend(self, tokens: int) -> None:
        """So many tokens of the answer were sent."""
        spending = self._account.spending
        known = min(tokens, self._reserved)
        self._reserved -= known
        spending.reserved -= known
        spending.spend(tokens)
        self._answered += tokens

    def close(self) -> None:
        """The answer has ended; further calls do nothing."""
        if self._open:
            account = self._account
            account.expected += 0.2 * (self._answered - account.expected)
            self.withdraw()
            self._left(account)

    def withdraw(self) -> None:
        """It does not count any more, and nobody is told."""
        self._open = False
        self._account.running -= 1
        self._account.spending.reserved -= self.tokens
