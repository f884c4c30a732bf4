"""The cost of a round by `Plan.bucket` and width: measured at warm-up, corrected by served rounds."""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import median

from services.target.core.width import Tree, Width, order_of

_LEVEL_RATE = 0.1
_CELL_RATE = 0.1
_AGAIN_RATE = 0.5
FIRST_ROUNDS = 3
_LARGEST_STEP = 0.4
_LARGEST_FIRST = 2.0
Cell = tuple[int, Width]
_APART = 1.2
"""First rounds of a width set it at most so far from what others let expect, and a run of its kind no farther."""
_LEAST = 0.1
"""Of what warm-up measured, whatever was learned since: no round costs nothing."""


class CostTable:
    """Microseconds of a round. `micros` of warm-up are those of the verify alone, draft and host left out.

    They are those of short contexts. Each token that the rows have in their contexts adds `per_token`, by width, where
    warm-up has measured it. The first served rounds of a cell replace its figure by whole rounds. Until then it looks
    too cheap: by the draft, which widths have in common, so the last one that was served corrects those that were not,
    of its bucket first.
    What contexts add besides is about the same for all widths. So rounds of one width after another move the level of
    their bucket alone, by microseconds, and a round whose width is not that of the one before moves its own cell: what
    a width costs more than another shows side by side. A cell that followed rounds in a row took a sixth of what a
    load's contexts grew by, and the width in use looked the dearer for it. A level that multiplied charged wide
    rounds more than narrow ones. Both move towards the mean of rounds. A cell that moved towards their median drew away
    from its level, where rounds scatter, until it could fall no further and plain looked half as dear again as it was.
    """

    def __init__(
        self,
        widths: Sequence[Width],
        buckets: Sequence[int],
        micros: Mapping[tuple[int, Width], float],
        per_token: Mapping[Width, float] | None = None,
    ) -> None:
        missing = [(bucket, width) for bucket in buckets for width in widths if micros.get((bucket, width), 0.0) <= 0.0]
        if missing:
            raise ValueError(f"no cost was measured for (bucket, width) {missing[0]}")
        self._base: dict[Cell, float] = {}
        self._per_token: dict[Width, float] = {}
        for alike in kinds_of(widths):
            self._base |= _smooth(alike, buckets, micros)
            slopes = _rising([(per_token or {}).get(width, 0.0) for width in alike])
            self._per_token |= dict(zip(alike, slopes, strict=True))
        self._level = dict.fromkeys(buckets, 0.0)
        self._cell: dict[Cell, float] = {}
        self._first: dict[Cell, list[float]] = {cell: [] for cell in self._base}
        self._drafts: dict[tuple[int, bool], float] = {}
        self._latest: dict[bool, float] = {}
        self._last: dict[int, Width] = {}
        self._runs: set[Cell] = set()

    def cost(self, bucket: int, width: Width, context: float = 0.0) -> float:
        """Microseconds that a round should take whose rows have `context` tokens together."""
        cell = bucket, width
        base = self._base[cell]
        own = self._cell[cell] if cell in self._cell else base * exp(self._correction(cell))
        return max(_LEAST * base, own + self._level[bucket] + self.of_context(width, context))

    def of_context(self, width: Width, context: float) -> float:
        """Microseconds that contexts of so many tokens together add, as warm-up measured it."""
        return self._per_token[width] * context

    def live_rounds(self, bucket: int, width: Width) -> int:
        """Served rounds that were measured, counted up to FIRST_ROUNDS."""
        return FIRST_ROUNDS if (bucket, width) in self._runs else len(self._first[bucket, width])

    def measured(self, bucket: int, width: Width, micros: float, context: float = 0.0) -> None:
        """Learns that a served round took `micros`.

        The median of the first FIRST_ROUNDS replaces the figure of warm-up. After them one outlier moves the estimate
        by little.
        """
        cell = bucket, width
        error = log(max(micros, 1e-3) / self.cost(bucket, width, context))
        in_a_row = self._last.get(bucket) == width
        self._last[bucket] = width
        first = self._first[cell]
        if len(first) < FIRST_ROUNDS and cell not in self._runs:
            base, whole = self._base[cell], self._moved(cell, _within(error, _LARGEST_FIRST), context)
            first.append(log(max(_LEAST, whole / base)))
            self._cell[cell] = self._likely(
                cell, base * exp(median(first)), self._drafted(bucket, isinstance(width, Tree))
            )
            if width != 1:
                trees, draft = isinstance(width, Tree), _within(median(first), _LARGEST_STEP)
                self._drafts[bucket, trees] = self._latest[trees] = draft
            return
        more = (exp(_within(error, _LARGEST_STEP)) - 1.0) * self.cost(bucket, width, context)
        if in_a_row:
            self._level[bucket] += _LEVEL_RATE * more
        elif cell not in self._runs:
            self._cell[cell] += _CELL_RATE * more

    def compared(self, bucket: int, width: Width, other: Width, dearer: float, context: float = 0.0) -> None:
        """Learns the log of what a round of `width` costs by one of `other`, each among its like, at such contexts.

        It is worth more than what single rounds show, which move this cell no longer. Between trees and chains it tells
        of others of its kind as well: theirs were measured at other times.
        """
        cell = bucket, width
        error = dearer + log(self.cost(bucket, other, context) / self.cost(bucket, width, context))
        self._cell[cell] = self._moved(cell, error * (_AGAIN_RATE if cell in self._runs else 1.0), context)
        self._runs.add(cell)
        if (trees := isinstance(width, Tree)) == isinstance(other, Tree):
            return
        for one in self._drafted(bucket, trees):
            if one not in self._runs:
                self._cell[one] = self._likely(one, self._cell[one], [cell])
                self._first[one] = [0.0] * FIRST_ROUNDS

    def table(self) -> dict[Cell, float]:
        """All costs by (bucket, width), of short contexts."""
        return {(bucket, width): self.cost(bucket, width) for bucket, width in self._base}

    def _drafted(self, bucket: int, trees: bool) -> list[Cell]:
        """Cells of rounds of chains with drafts, or of trees, in a bucket of which some were served."""
        return [
            cell for cell in self._cell if cell[0] == bucket and cell[1] != 1 and isinstance(cell[1], Tree) == trees
        ]

    def _likely(self, cell: Cell, micros: float, others: Sequence[Cell]) -> float:
        """What first rounds of a cell say, as far as others of its kind let it be so: drafts and host take as long."""
        more = [self._cell[one] - self._base[one] for one in others if one != cell]
        if not more or cell[1] == 1:
            return micros
        usual = self._base[cell] + median(more)
        return max(usual / _APART, min(usual * _APART, micros))

    def _moved(self, cell: Cell, error: float, context: float) -> float:
        """What the cell must be for the cost at such contexts to be larger by `error`, a log."""
        bucket, width = cell
        beside = self._level[bucket] + self.of_context(width, context)
        return self.cost(bucket, width, context) * exp(error) - beside

    def _correction(self, cell: Cell) -> float:
        """Of a cell that was not served yet, a log: drafts are what warm-up left out."""
        bucket, width = cell
        trees = isinstance(width, Tree)
        known = (self._drafts.get((bucket, trees)), self._latest.get(trees), self._drafts.get((bucket, False)))
        return 0.0 if width == 1 else next((draft for draft in known if draft is not None), 0.0)


def kinds_of(widths: Sequence[Width]) -> tuple[list[Width], ...]:
    """Return chains, trees, and chains of any lengths."""
    return tuple([width for width in widths if order_of(width)[1] == kind] for kind in range(3))


def _smooth(widths: Sequence[Width], buckets: Sequence[int], micros: Mapping[Cell, float]) -> dict[Cell, float]:
    """What warm-up measured of widths of one kind, rising with the width and with the bucket."""
    rows = [_rising([float(micros[bucket, width]) for width in widths]) for bucket in buckets]
    columns = [_rising(column) for column in zip(*rows, strict=True)]
    return {
        (bucket, width): columns[column][row]
        for row, bucket in enumerate(buckets)
        for column, width in enumerate(widths)
    }


def _within(value: float, most: float) -> float:
    return max(-most, min(most, value))


def _rising(values: Iterable[float]) -> list[float]:
    """The mean of the closest rising curve above and the closest below, because more work never costs less."""
    above: list[float] = []
    for value in values:
        above.append(max(value, above[-1]) if above else value)
    below: list[float] = []
    for value in reversed(list(values)):
        below.append(min(value, below[-1]) if below else value)
    return [(high + low) / 2 for high, low in zip(above, reversed(below), strict=True)]
