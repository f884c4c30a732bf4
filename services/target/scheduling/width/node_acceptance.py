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
from services.target.scheduling.width.acceptance import Acceptance, AcceptanceSettings, Chances, Row

_FORGET = 0.998
"""Of what trees of all requests accepted: what chains promise follows the texts, and this only what trees add."""
_SHARED_WEIGHT = 32.0
"""Observations of others that a request's own are worth as much as: chance is larger than what requests differ by."""
_PRIOR_WEIGHT = 16.0
_HOPE = 1.1
"""What a tree is thought to accept, by a chain of as many rows, with the weight of so many observations."""
_TOLD = 2
"""First children of which a tree tells as a chain would: nearly every tree has them."""
_FIRST = 4
"""Drafts of a chain by which requests are compared: those of most trees' first children."""
_MOST_SCALE = 2.0


class NodeAcceptance(Acceptance):
    """Expected commits of the requests that decode now, in rounds of chains and of trees."""

    refreshed_at_once = 4
    """Less than of chains: a row of trees takes twice the time."""

    def __init__(self, widths: Sequence[Width], settings: AcceptanceSettings | None = None) -> None:
        super().__init__(widths, settings)
        self._most_nodes = max((int(width) for width in widths if isinstance(width, Tree)), default=1) - 1
        self._trees, self._unknown = Chances(self._most_nodes), Chances(self._most_nodes)
        self._promised = Chances(1)

    def _learn(
        self, row: Row, drafted: int, accepted: int, ended: bool, path: Sequence[int], trunk: Sequence[int]
    ) -> None:
        if not trunk:
            super()._learn(row, drafted, accepted, ended, path, trunk)
            return
        told = trunk[:_TOLD]
        super()._learn(row, len(told), _straight(path, told), ended, path, trunk)
        if ended:
            return
        shared, own = _FORGET, self._settings.request_forget
        row.nodes = row.nodes or Chances(self._most_nodes)
        _add(self._trees, drafted, path, shared)
        _add(row.nodes, drafted, path, own)
        promised, tried = self._promised.matched, self._promised.tried
        promised[0] = promised[0] * shared + row.promised
        tried[0] = tried[0] * shared + 1.0

    def _values(self, row: Row) -> Iterable[float]:
        """The chains' as elsewhere; of a tree the sum of its rows' chances, as far as the request may still go."""
        chances = self._chances(row, self._longest)
        chains, trees = self._gathered(row, chances), self._gathered_nodes(row, chances)
        for width in self._widths:
            gathered = trees if isinstance(width, Tree) else chains
            yield gathered[min(int(width), len(gathered)) - 1]

    def _gathered_nodes(self, row: Row, chain: Sequence[float]) -> list[float]:
        own, others = row.nodes or self._unknown, self._trees
        row.promised = _extra(chain)
        most, scale = 1.0 + max(0, min(row.cap, row.left - 1)), self._scale(row.promised)
        before, total = _HOPE, 1.0
        gathered = [1.0]
        every = zip(own.matched, own.tried, others.matched, others.tried, chain, strict=False)
        for matched, tried, theirs, of_theirs, reach in every:
            chance = (scale * theirs + before * reach * _PRIOR_WEIGHT) / (of_theirs + _PRIOR_WEIGHT)
            chance = (matched + chance * _SHARED_WEIGHT) / (tried + _SHARED_WEIGHT)
            before = chance if chance < 1.0 else 1.0
            total += before
            gathered.append(total if total < most else most)
        return gathered

    def _scale(self, extra: float) -> float:
        """What a request's chain promises, by the mean of those whose trees were observed."""
        promised, tried = self._promised.matched[0], self._promised.tried[0]
        if promised <= 0.0:
            return 1.0
        return min(_MOST_SCALE, max(1.0 / _MOST_SCALE, extra * tried / promised))


def _extra(chances: Sequence[float]) -> float:
    """Drafts that a chain of a few should have accepted."""
    reaches: Iterable[float] = accumulate(chances[:_FIRST], mul)
    return sum(reaches)


def _straight(path: Sequence[int], trunk: Sequence[int]) -> int:
    """How many accepted nodes are those of the path of first children."""
    return sum(one == other for one, other in zip(path, trunk, strict=False))


def _add(chances: Chances, drafted: int, path: Sequence[int], forget: float) -> None:
    chances.matched[:drafted] = [count * forget for count in chances.matched[:drafted]]
    chances.tried[:drafted] = [count * forget + 1.0 for count in chances.tried[:drafted]]
    for row in path:
        chances.matched[row - 1] += 1.0
