"""Estimates how many tokens rounds of trees commit beside those of chains, from observed acceptance alone.

The nodes of a tree come best first, and the tree of fewer nodes is the beginning of the larger one. So a round tells of
every smaller one what it would have accepted: the rows of its path that are among the first. For each row it estimates
the chance that it is accepted, per request, leaning on all requests as `Acceptance` does. What the last round of a
request accepted may have been cut, and is not counted.

The first children of a tree are the chain that the drafter would have made, so rounds of trees tell of a chain's first
drafts too. Of later ones they tell where the drafter was sure, which flatters chains. Rounds of chains say nothing of a
tree's other rows. What others' trees accepted is therefore scaled by what a request's chain promises now, against what
chains of those that were observed promised then.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from services.target.core.width import Tree, Width
from services.target.scheduling.width.acceptance import Acceptance, AcceptanceSettings, NodeChances, Row

_FORGET = 0.998
"""Of what trees of all requests accepted: what chains promise follows the texts, and this only what trees add."""
_SHARED_WEIGHT = 32.0
"""Observations of others that a request's own are worth as much as: chance is larger than what requests differ by."""
_PRIOR_WEIGHT = 16.0
_HOPE = 1.1
"""What a tree is thought to accept, by a chain of as many rows, with the weight of so many observations."""
_VISITED = 6.0
"""Trees of all requests behind which a visit has told of them."""
_TOLD = 2
"""First children at most of which a tree tells as a chain would: nearly every tree has them."""
_FIRST = 4
"""Drafts of a chain by which requests are compared: those of most trees' first children."""
_MOST_SCALE = 2.0
_TOLD_AT_ONCE = 16
"""Trees of a round from which much is learned at most: of more requests each has its turn."""
_NEWS, _FEW = 8, 64
"""Trees after which those of all requests are counted anew, and how many are few: then each changes much."""


class NodeAcceptance(Acceptance):
    """Expected commits of the requests that decode now, in rounds of chains and of trees."""

    refreshed_at_once = 4
    """Less than of chains: a row of trees takes twice the time."""

    def __init__(self, widths: Sequence[Width], settings: AcceptanceSettings | None = None) -> None:
        super().__init__(widths, settings)
        self._sizes = tuple(int(width) - 1 for width in widths if isinstance(width, Tree))
        self._falls = [row / (row + 1) for row in range(self._longest)]
        self._trees = NodeChances(self._sizes)
        self._unknown = NodeChances(self._sizes)
        self._counts, self._news = self._trees.counts(), 0
        self._promised = self._told = 0.0

    def _learn(
        self, row: Row, drafted: int, accepted: int, ended: bool, path: Sequence[int], trunk: Sequence[int]
    ) -> None:
        if not trunk:
            super()._learn(row, drafted, accepted, ended, path, trunk)
            return
        if (turns := len(self._rows) // _TOLD_AT_ONCE) > 1 and (row.rounds + row.uid) % turns:
            return
        super()._learn(row, min(len(trunk), _TOLD), _straight(path, trunk), ended, path, trunk)
        if ended:
            return
        shared, own = _FORGET, self._settings.request_forget
        row.nodes = row.nodes or NodeChances(self._sizes)
        self._trees.add(drafted, path, shared)
        row.nodes.add(drafted, path, own)
        self._news += 1
        self._promised = self._promised * shared + row.promised
        self._told = self._told * shared + 1.0

    def _values(self, row: Row) -> Iterable[float]:
        """The chains' as elsewhere; of a tree the sum of its rows' chances, as far as the request may still go."""
        chances = self._chances(row, self._longest)
        chains, trees = self._gathered(row, chances), self._gathered_nodes(row, chances)
        for width in self._widths:
            gathered = trees if isinstance(width, Tree) else chains
            yield gathered[min(int(width), len(gathered)) - 1]

    def _gathered_nodes(self, row: Row, chain: Sequence[float]) -> list[float]:
        own, others, of_others = row.nodes or self._unknown, *self._counts_of_all()
        row.promised = _extra(chain)
        most, scale = 1.0 + max(0, min(row.cap, row.left - 1)), self._scale(row.promised)
        before, total, begin = _HOPE, 1.0, 0
        if len(self._rows) == 1 and self._told > _VISITED:
            # A lone request's trees are seen seldom. Rows come best first, so each is hoped to come nearly as often as
            # the one before it: that is what they do, and where a chain's chance is lower a second choice stands there.
            before, chain = 1.0, [*map(max, chain, self._falls)]
        gathered = [1.0]
        for size, unit in zip(self._sizes, own.units, strict=True):
            ends, weight = own.ends[begin:size], _SHARED_WEIGHT * unit
            tried = weight + sum(ends)
            every = zip(
                own.matched[begin:size], ends, others[begin:size], of_others[begin:size], chain[begin:size], strict=True
            )
            for matched, end, theirs, of_theirs, reach in every:
                chance = (scale * theirs + before * reach * _PRIOR_WEIGHT) / (of_theirs + _PRIOR_WEIGHT)
                chance = (matched + chance * weight) / tried
                before = chance if chance < 1.0 else 1.0
                tried -= end
                total += before
                gathered.append(total if total < most else most)
            begin = size
        return gathered

    def _scale(self, extra: float) -> float:
        """What a request's chain promises, by the mean of those whose trees were observed."""
        if self._promised <= 0.0:
            return 1.0
        return min(_MOST_SCALE, max(1.0 / _MOST_SCALE, extra * self._told / self._promised))

    def _counts_of_all(self) -> tuple[list[float], list[float]]:
        """Nodes of all requests, accepted and tried, anew after some of them, for they change slowly."""
        if self._news >= len(self._rows) and (self._news >= _NEWS or self._told < _FEW):
            self._counts, self._news = self._trees.counts(), 0
        return self._counts


def _extra(chances: Sequence[float]) -> float:
    """Drafts that a chain of a few should have accepted."""
    reaches: Iterable[float] = accumulate(chances[:_FIRST], mul)
    return sum(reaches)


def _straight(path: Sequence[int], trunk: Sequence[int]) -> int:
    """How many accepted nodes are those of the path of first children, which begins with one or two rows."""
    if not path or path[0] != trunk[0]:
        return 0
    return 1 + (len(path) > 1 and len(trunk) > 1 and path[1] == trunk[1])
