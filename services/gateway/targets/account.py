"""What one tenant has at this gateway, and what targets said of the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.gateway.targets.link import Link
from services.gateway.targets.messages import Standing
from services.gateway.tenancy.admission import Tenant
from services.gateway.tenancy.spending import Clock, Spending

FRESH_S = 1.5
"""How long what a target said of all gateways is believed; it says it every second."""

FIRST_ANSWER = 64
"""Tokens with which a tenant's answers are reckoned before any has ended."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What other gateways had at one of the targets that count, when it said so, and since when it knew so many."""

    requests: int
    tokens: int
    gateways: int
    at: float
    since: float


class Account:
    """One tenant at this gateway; `homes` are the targets that count it, first the one that is asked first.

    `running` and `spending` hold what asks to run, too. `telling` says that a statement is on its way.
    """

    def __init__(self, tenant: Tenant, clock: Clock) -> None:
        """Starts without requests."""
        self.tenant = tenant
        self.running = self.waiting = 0
        self.spending = Spending(clock)
        self.expected = float(FIRST_ANSWER)
        self.homes: tuple[Link, ...] = ()
        self.seen: object = None
        self.gateways = 1
        self.telling = False
        self._moved_at = float("-inf")
        self._heard: dict[Link, Heard] = {}
        self._asking: dict[Link, tuple[int, int]] = {}
        self._answered: dict[Link, int] = {}
        self._clock = clock

    @property
    def used(self) -> bool:
        """A call of the tenant runs or waits, or ran within the last minute."""
        return bool(self.running or self.waiting or self.spending.used)

    def own(self, home: Link) -> tuple[int, int]:
        """Requests and tokens of this gateway that a target has granted, as far as its answers have come."""
        requests, tokens = self._asking.get(home, (0, 0))
        return self.running - requests, self.spending.used - tokens

    def ask(self, home: Link, requests: int, tokens: int) -> None:
        """So many more, or fewer, ask to run at a target, which has not answered."""
        asking, asking_tokens = self._asking.get(home, (0, 0))
        self._asking[home] = (asking + requests, asking_tokens + tokens)

    def last(self, home: Link) -> int:
        """Number of the last statement that a target has answered; 0 for none."""
        return self._answered.get(home, 0)

    def heard(self, home: Link, standing: Standing, own: tuple[int, int]) -> None:
        """Notes what others have: all that the target knows less what it knows of this gateway."""
        self._answered[home] = standing.number
        if not standing.granted or home not in self.homes:
            return
        requests, tokens = max(standing.requests - own[0], 0), max(standing.tokens - own[1], 0)
        now, before = self._clock(), self._heard.get(home)
        since = before.since if before is not None and before.gateways == standing.gateways else now
        self._heard[home] = Heard(requests, tokens, standing.gateways, now, since)
        self.gateways = max(one.gateways for one in self._heard.values())

    def moved(self, homes: tuple[Link, ...]) -> None:
        """Others count it from now on."""
        if self.homes:
            self._moved_at = self._clock()
        self.homes = homes
        self._heard = {home: heard for home, heard in self._heard.items() if home in homes}
        self._answered = {home: number for home, number in self._answered.items() if home in homes}

    def others(self) -> tuple[int, int]:
        """The most requests and tokens that a target has said of other gateways lately."""
        heard = [one for one in self._heard.values() if self._fresh(one)]
        requests = max((one.requests for one in heard), default=0)
        return requests, max((one.tokens for one in heard), default=0)

    def unknown_s(self, told_s: float) -> float:
        """Seconds until no gateway believes what a target said before it knew this one, and all is told there.

        Args:
            told_s: the time in which what another gateway has reaches all targets that count.
        """
        if not self.homes:
            return 0.0
        joined_s = max(home.open_s for home in self.homes)
        return max(FRESH_S + told_s - joined_s, self._moved_at + told_s - self._clock())

    @property
    def lone(self) -> bool:
        """No target that counts knows another gateway."""
        return self.agreed and self.gateways <= 1

    @property
    def agreed(self) -> bool:
        """All that count know as many gateways and have for a while, so none of these is at the later ones alone.

        What they said a moment ago is of different moments: one may have heard of a gateway that another has not.
        """
        known = [heard for home in self.homes if (heard := self._heard.get(home)) is not None and self._fresh(heard)]
        settled = all(self._clock() - heard.since >= FRESH_S for heard in known)
        return settled and 0 < len(self.homes) == len(known) and len({heard.gateways for heard in known}) == 1

    def _fresh(self, heard: Heard) -> bool:
        return self._clock() - heard.at < FRESH_S


class Claim:
    """Answers of one call that ask to run; each target that counts has to grant them, or hears of them later."""

    def __init__(self, account: Account, permits: Sequence["Permit"]) -> None:
        """No target has granted anything."""
        self.requests = len(permits)
        self.tokens = sum(permit.tokens for permit in permits)
        self._account = account
        self._open = set(account.homes)
        for home in self._open:
            account.ask(home, self.requests, self.tokens)

    def granted(self, home: Link) -> None:
        """A target has granted them: they are part of what is stated there."""
        if home in self._open:
            self._open.discard(home)
            self._account.ask(home, -self.requests, -self.tokens)

    def end(self) -> None:
        """They run or do not; further targets are not asked."""
        for home in [*self._open]:
            self.granted(home)


class Permit:
    """One answer of a tenant that is bounded over all gateways; it counts from the moment at which it asks to run."""

    def __init__(self, account: Account, prompt: int, answer: int, left: Callable[[Account], None]) -> None:
        """Its prompt, as far as it is known, and of its answer as much as is to be expected are reserved."""
        self._account = account
        self._left = left
        self._prompt = prompt
        self._reserved = answer
        self._answered = 0
        self._began = False
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
        self._began = True

    def spend(self, tokens: int) -> None:
        """So many tokens of the answer were sent."""
        spending = self._account.spending
        known = min(tokens, self._reserved)
        self._reserved -= known
        spending.reserved -= known
        spending.spend(tokens)
        self._answered += tokens

    def close(self) -> None:
        """The answer has ended, or never began and teaches no length; further calls do nothing."""
        if self._open:
            account = self._account
            if self._began:
                account.expected += 0.2 * (self._answered - account.expected)
            self.withdraw()
            self._left(account)

    def withdraw(self) -> None:
        """It does not count any more, and nobody is told."""
        self._open = False
        self._account.running -= 1
        self._account.spending.reserved -= self.tokens
