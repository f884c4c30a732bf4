"""Estimates what rounds commit whose requests have chains of any lengths, and which request gets how many rows.

A draft is accepted by the log-odds of its position plus those of its request. Requests that are given few rows show
nothing of later positions, and those that are given many are the able ones: means by position would flatter all
others. A request's own number is learned at every position alike, so it says of positions that were not tried.

A token of a request that commits few a round is worth more than one of a request that commits many. A round that brings
the most tokens gives the able all rows; they are soon done, and the weak hold the slots for long.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import exp, log

from services.target.core.width import Ragged, Width
from services.target.scheduling.width.acceptance import Acceptance, AcceptanceSettings, Row

_DRIFT, _SHARED_DRIFT = 0.002, 0.0005
"""By how much the variance of a request's number, and of a position's, grows with each observation: texts change."""
_SPREAD, _SHARED_SPREAD = 0.5, 1.0
"""Variances at first, of the requests' numbers and of the positions'."""
_SPREAD_RATE, _LEAST_SPREAD = 0.05, 0.02
_PACED, _FAIR = 6, 0.75
"""Rows by which requests are compared, and the power of what they commit by which a token is worth less."""
_TOLD = 16
"""Rounds after which a request tells by how much requests differ."""


class _Belief:
    """A number of log-odds and its variance, moved by what was accepted against what was expected."""

    __slots__ = ("mean", "variance")

    def __init__(self, mean: float, variance: float) -> None:
        self.mean, self.variance = mean, variance

    def learn(self, error: float, doubt: float, drift: float) -> None:
        """Takes one observation; `doubt` is the variance of what was expected."""
        self.variance /= 1.0 + self.variance * doubt
        self.mean += self.variance * error
        self.variance += drift


class Abilities(Acceptance):
    """Expected commits of the requests that decode now, in chains of one length and of any lengths."""

    def __init__(self, widths: Sequence[Width], settings: AcceptanceSettings | None = None) -> None:
        super().__init__(widths, settings)
        odds = log(self._settings.optimism / (1.0 - self._settings.optimism))
        self._positions = [_Belief(odds, _SHARED_SPREAD) for _ in range(self._longest)]
        self._requests: dict[int, _Belief] = {}
        self._spread = _SPREAD
        self._shares: dict[int, _Shares] = {}
        self._news, self._scale = 0, 1.0

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """As `Acceptance.join`."""
        self._requests[uid] = _Belief(0.0, self._spread)
        super().join(uid, cap, left)
        self._shares.clear()

    def leave(self, uid: int) -> None:
        """As `Acceptance.leave`; learns by how much requests differ."""
        belief, rounds = self._requests.pop(uid), self._rows[uid].rounds
        if rounds >= _TOLD:
            apart = max(_LEAST_SPREAD, belief.mean**2 - belief.variance)
            self._spread += _SPREAD_RATE * (min(4.0 * self._spread, apart) - self._spread)
        super().leave(uid)
        self._shares.clear()

    def observe(
        self, uid: int, drafted: int, accepted: int, ended: bool, path: Sequence[int] = (), trunk: Sequence[int] = ()
    ) -> None:
        """As `WidthPolicy.observe`."""
        super().observe(uid, drafted, accepted, ended, path, trunk)
        self._news += 1

    def tokens(self, share: float) -> list[float]:
        """What a round should commit, by width, which has such a share of the requests: tokens by their worth."""
        self._renew()
        every = zip(self._widths, self._sums, strict=True)
        return [
            self._scale
            * share
            * (self._of(width.grain).tokens(width.rows / share) if isinstance(width, Ragged) else total)
            for width, total in every
        ]

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """Rows of each of these requests in a round of so many together: those that should bring most."""
        self._renew()
        return self._of(width.grain).takes(width.pieces, uids)

    def _renew(self) -> None:
        """Forgets what was ranked, every second round."""
        if self._news >= 2 * len(self._rows):
            self._news = 0
            self._shares.clear()
            paced = [(row.gathered[min(_PACED, len(row.gathered)) - 1], row.worth) for row in self._rows.values()]
            self._scale = sum(tokens for tokens, _ in paced) / sum(tokens * worth for tokens, worth in paced)

    def _of(self, grain: int) -> "_Shares":
        if grain not in self._shares:
            most = self._longest + 1
            self._shares[grain] = _Shares(self._rows, grain, most)
        return self._shares[grain]

    def _learn(
        self, row: Row, drafted: int, accepted: int, ended: bool, path: Sequence[int], trunk: Sequence[int]
    ) -> None:
        own = self._requests[row.uid]
        seen = accepted + (accepted < drafted and not ended)
        for place, position in enumerate(self._positions[:seen]):
            chance = _chance(own.mean + position.mean)
            error, doubt = (place < accepted) - chance, chance * (1.0 - chance)
            position.learn(error, doubt, _SHARED_DRIFT)
            own.learn(error, doubt, _DRIFT)

    def _chances(self, row: Row, count: int) -> list[float]:
        own = self._requests[row.uid].mean
        return [_chance(own + position.mean) for position in self._positions[:count]]

    def _values(self, row: Row) -> Iterable[float]:
        row.gathered = self._gathered(row, self._chances(row, self._most(row)))
        last = len(row.gathered) - 1
        row.worth = row.gathered[min(_PACED - 1, last)] ** -_FAIR
        return (row.worth * row.gathered[min(int(width) - 1, last)] for width in self._widths)


class _Shares:
    """What each further piece of a request should bring, the best first; every request has its first one."""

    def __init__(self, requests: Mapping[int, Row], grain: int, most: int) -> None:
        """Each request has as many rows at most."""
        self._grain, self._count = grain, len(requests)
        ranked: list[tuple[float, int, int]] = []
        base = 0.0
        for uid, row in requests.items():
            tokens, last = row.gathered, len(row.gathered) - 1
            before = row.worth * tokens[min(grain, last + 1) - 1]
            base += before
            for rows in range(2 * grain, most + 1, grain):
                if rows - grain > last:
                    break
                total = row.worth * tokens[min(rows - 1, last)]
                ranked.append((before - total, rows, uid))
                before = total
        ranked.sort()
        self._ranked = ranked
        self._totals = [base, *accumulate((-gain for gain, _, _ in ranked), initial=0.0)]
        self._totals = [base + total for total in self._totals[1:]]

    def tokens(self, rows: float) -> float:
        """Tokens of a round of so many rows for all requests."""
        more = int(rows / self._grain) - self._count
        return self._totals[max(0, min(more, len(self._totals) - 1))]

    def takes(self, pieces: int, uids: Sequence[int]) -> tuple[int, ...]:
        """Rows of each of some requests, in so many pieces."""
        counts, left = dict.fromkeys(uids, 1), pieces - len(uids)
        for _, _, uid in self._ranked:
            if left <= 0:
                break
            if uid in counts:
                counts[uid] += 1
                left -= 1
        return tuple(self._grain * count for count in counts.values())


def _chance(odds: float) -> float:
    return 1.0 / (1.0 + exp(-max(-30.0, min(30.0, odds))))
