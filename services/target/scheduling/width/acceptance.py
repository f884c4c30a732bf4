"""Estimates how many tokens a round of a given width commits, from observed acceptance alone.

For each position j it estimates, per request, the chance that draft j matches given that all before it did; with few
observations of its own it leans on those of all requests. Drafts after the first mismatch tell nothing and are not
counted, nor is the mismatch of a request's last round, whose end may have cut it.

A drafter that looks up has drafts in some rounds alone: what drafts bring counts by the share of the rounds that have
them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from services.target.core.width import Ragged, Width, evenly

_NO_END = 1 << 40
_MANY = 5
"""Times the rows that are refreshed at once: of so many some end in most rounds."""
_LEAST_SHARE = 0.1
"""Of rounds with drafts, whatever was seen: a text may begin to repeat itself at any token, and plain rounds would not
show it."""
_LARGEST_UNIT = 1e12
"""Of counts: far below what a float holds, far above what is left of old rounds."""


@dataclass(frozen=True, slots=True)
class AcceptanceSettings:
    """`optimism` is the chance that is assumed at first, with the weight of `optimism_weight` observations.

    A request's chance is the mean of its own observations and of `shared_weight` more that match as often as those of
    all requests. Each observation of a position multiplies the older ones of it by a `forget` factor: `request_forget`
    among a request's own, `shared_forget` among those of all. Greedy and sampled requests, which may follow one
    another, differ much in what they accept: so the weight is small, and what was long ago counts next to nothing.
    """

    optimism: float = 0.8
    optimism_weight: float = 2.0
    shared_weight: float = 8.0
    request_forget: float = 0.98
    shared_forget: float = 0.98


class Chances:
    """Counts of matches and trials by position; an observation first multiplies those of its position by `forget`."""

    __slots__ = ("matched", "tried")

    def __init__(self, longest: int) -> None:
        self.matched = [0.0] * longest
        self.tried = [0.0] * longest

    def add(self, accepted: int, missed: bool, forget: float) -> None:
        """Note that so many of the first drafts matched, and whether the next one did not."""
        matched, tried = self.matched, self.tried
        for position in range(accepted):
            matched[position] = matched[position] * forget + 1.0
            tried[position] = tried[position] * forget + 1.0
        if missed:
            matched[accepted] *= forget
            tried[accepted] = tried[accepted] * forget + 1.0


class NodeChances:
    """Counts of accepted and of tried nodes by row. A round multiplies the older ones of what it tried by `forget`.

    Instead the unit in which newer ones are counted grows. So a round changes the few rows that it accepted, however
    many it tried. Rows between two sizes of trees are mostly tried together, and have one unit. `matched` are accepted
    ones by row, and `ends` rounds by the last row of a size that they tried.
    """

    __slots__ = ("_sizes", "ends", "matched", "units")

    def __init__(self, sizes: Sequence[int]) -> None:
        """Trees have so many rows behind the anchor, rising."""
        self._sizes = sizes
        self.matched, self.ends = [0.0] * sizes[-1], [0.0] * sizes[-1]
        self.units = [1.0] * len(sizes)

    def add(self, drafted: int, path: Sequence[int], forget: float) -> None:
        """Note a round that tried so many rows and accepted those of `path`."""
        sizes, units = self._sizes, self.units
        for part, size in enumerate(sizes):
            unit = units[part] = units[part] / forget
            self.ends[min(drafted, size) - 1] += unit
            if unit > _LARGEST_UNIT:
                self._rescale(part)
            if drafted <= size:
                break
        for row in path:
            self.matched[row - 1] += units[bisect_left(sizes, row)]

    def counts(self) -> tuple[list[float], list[float]]:
        """Accepted and tried nodes, by row."""
        matched, tried, begin = list[float](), list[float](), 0
        for size, unit in zip(self._sizes, self.units, strict=True):
            matched += [count / unit for count in self.matched[begin:size]]
            tried += [count / unit for count in accumulate(self.ends[begin:size][::-1])][::-1]
            begin = size
        return matched, tried

    def _rescale(self, part: int) -> None:
        """Makes the unit of some rows 1 again; what old rounds left is nothing beside it."""
        begin, size = self._sizes[part - 1] if part else 0, self._sizes[part]
        for counts in (self.matched, self.ends):
            counts[begin:size] = [count / self.units[part] for count in counts[begin:size]]
        self.units[part] = 1.0


class Row:
    """One request: its chances, its longest draft, the tokens to come, and those that it should commit by width.

    `nodes` are the chances of a tree's rows, once a round of trees has shown them. `gathered` are tokens by rows,
    each `worth` so much. `offers` are its rounds with drafts and without. Its chain `promised` so many drafts of a few
    when they were last looked at.
    """

    __slots__ = (
        "cap",
        "chances",
        "expected",
        "gathered",
        "left",
        "nodes",
        "offers",
        "promised",
        "rounds",
        "uid",
        "worth",
    )

    def __init__(self, uid: int, longest: int, cap: int, left: int, widths: int) -> None:
        self.uid = uid
        self.gathered: list[float] = []
        self.worth = 1.0
        self.promised = 0.0
        self.chances = Chances(longest)
        self.offers: Chances | None = None
        self.nodes: NodeChances | None = None
        self.cap = cap
        self.left = left
        self.expected = [0.0] * widths
        self.rounds = 0


class Acceptance:
    """Expected commits of the requests that decode now; an observation costs O(longest draft)."""

    refreshed_at_once = 6
    """Rows, up to which each is looked at again after each of its rounds."""

    def __init__(self, widths: Sequence[Width], settings: AcceptanceSettings | None = None) -> None:
        self._settings = settings or AcceptanceSettings()
        self._widths = tuple(widths)
        self._longest = max(map(int, widths)) - 1
        self._shared = Chances(self._longest)
        self._offers: Chances | None = None
        self._rows: dict[int, Row] = {}
        self._sums = [0.0] * len(self._widths)

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """A request starts to decode; `cap` is its longest draft, `left` its tokens to come; None: no limit of its own.

        A row commits no more than what is left, so the last rounds of a load promise less the wider they are.
        """
        most = self._longest if cap is None else min(cap, self._longest)
        row = Row(uid, self._longest, most, _NO_END if left is None else left, len(self._widths))
        self._rows[uid] = row
        self._refresh(row)

    @property
    def rows(self) -> int:
        """Requests that decode."""
        return len(self._rows)

    def leave(self, uid: int) -> None:
        """A request stops decoding."""
        row = self._rows.pop(uid)
        for index, value in enumerate(row.expected):
            self._sums[index] -= value
        if not self._rows:
            self._sums = [0.0] * len(self._widths)

    def observe(
        self, uid: int, drafted: int, accepted: int, ended: bool, path: Sequence[int] = (), trunk: Sequence[int] = ()
    ) -> None:
        """As `WidthPolicy.observe`."""
        row = self._rows.get(uid)
        if row is None:
            return
        row.left -= accepted + 1
        if drafted == 0:
            return
        self._learn(row, drafted, accepted, ended, path, trunk)
        if self._offers is not None:
            self._offered(row, self._offers, True)
        row.rounds += 1
        # One row changes the sum over many rows by little, so with many rows they are refreshed in turn.
        ends, many = row.left <= self._longest, len(self._rows) // self.refreshed_at_once
        if (row.rounds + uid) % (1 + many) == 0 or (ends and many < _MANY):
            self._refresh(row)
        elif ends:
            self._bound(row)

    def missed(self, uid: int) -> None:
        """As `WidthPolicy.missed`."""
        row = self._rows.get(uid)
        if row is None:
            return
        if self._offers is None:
            self._offers = Chances(1)
        self._offered(row, self._offers, False)
        self._refresh(row)

    def tokens(self, share: float) -> list[float]:
        """Tokens that a round should commit, by width, which has such a share of the requests."""
        return [share * total for total in self._sums]

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """Rows of each of these requests in a round of so many together."""
        return evenly(width, len(uids))

    def expected(self) -> list[float]:
        """Tokens that all decoding requests together should commit in one round, by width."""
        return self._sums

    def _learn(
        self, row: Row, drafted: int, accepted: int, ended: bool, path: Sequence[int], trunk: Sequence[int]
    ) -> None:
        missed = accepted < drafted and not ended
        self._shared.add(accepted, missed, self._settings.shared_forget)
        row.chances.add(accepted, missed, self._settings.request_forget)

    def _refresh(self, row: Row) -> None:
        for index, value in enumerate(self._values(row)):
            self._sums[index] += value - row.expected[index]
            row.expected[index] = value

    def _bound(self, row: Row) -> None:
        """Takes back what a row promises beyond its end, without looking at its chances again."""
        most = row.worth * max(1, row.left)
        for index, value in enumerate(row.expected):
            if value > most:
                self._sums[index] += most - value
                row.expected[index] = most

    def _values(self, row: Row) -> Iterable[float]:
        """Tokens that a row should commit, by width."""
        gathered = self._gathered(row, self._chances(row, self._most(row)))
        return (gathered[min(int(width), len(gathered)) - 1] for width in self._widths)

    @staticmethod
    def _most(row: Row) -> int:
        """Drafts that a row can use."""
        return max(0, min(row.cap, row.left - 1))

    def _gathered(self, row: Row, chances: Sequence[float]) -> list[float]:
        """Tokens that a row should commit, by its number of rows, as far as it can use them."""
        reach, total = self._share(row), 1.0
        gathered = [1.0]
        for chance in chances[: self._most(row)]:
            reach *= chance
            total += reach
            gathered.append(total)
        return gathered

    def _offered(self, row: Row, shared: Chances, had: bool) -> None:
        """Notes whether a round had drafts for a row."""
        row.offers = row.offers or Chances(1)
        shared.add(int(had), not had, self._settings.shared_forget)
        row.offers.add(int(had), not had, self._settings.request_forget)

    def _share(self, row: Row) -> float:
        """The share of a row's rounds that have drafts."""
        settings, others = self._settings, self._offers
        if others is None:
            return 1.0
        own, weight = row.offers or Chances(1), settings.optimism_weight
        known = (others.matched[0] + weight) / (others.tried[0] + weight)
        share = (own.matched[0] + known * settings.shared_weight) / (own.tried[0] + settings.shared_weight)
        return max(share, _LEAST_SHARE)

    def _chances(self, row: Row, count: int) -> list[float]:
        """A row's chances at the first positions.

        Where other requests tell little of a position, the request's own chance at the position before stands in.
        """
        settings, own, others = self._settings, row.chances, self._shared
        weight, shared = settings.optimism_weight, settings.shared_weight
        chance, chances = settings.optimism, []
        every = zip(range(count), own.matched, own.tried, others.matched, others.tried, strict=False)
        for _, matched, tried, theirs, of_theirs in every:
            known = (theirs + chance * weight) / (of_theirs + weight)
            chance = (matched + known * shared) / (tried + shared)
            chances.append(chance)
        return chances
