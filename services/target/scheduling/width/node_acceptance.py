"""Estimates how many tokens a round of a given number of nodes commits, from observed acceptance alone.

The nodes of a tree come best first, and the tree of fewer nodes is the beginning of the larger one. So a round tells of
every smaller one what it would have accepted: the rows of its path that are among the first. For each row it estimates
the chance that it is accepted, per request, leaning on all requests as `Acceptance` does. What the last round of a
request accepted may have been cut, and is not counted.
"""

from collections.abc import Sequence

from services.target.scheduling.width.acceptance import Acceptance, Chances, Row

_FALLING = 0.8
"""A row that nobody has seen is accepted as often as the one before, times this: more often than trees show."""


class NodeAcceptance(Acceptance):
    """Expected commits of the requests that decode now, in rounds of nodes."""

    def _learn(self, row: Row, drafted: int, accepted: int, ended: bool, path: Sequence[int]) -> None:
        if ended:
            return
        for chances, forget in (
            (self._shared, self._settings.shared_forget),
            (row.chances, self._settings.request_forget),
        ):
            _add(chances, drafted, path, forget)

    def _gathered(self, row: Row) -> list[float]:
        """The sum of the rows' chances, as far as the request may still go."""
        settings, own, others = self._settings, row.chances, self._shared
        most = 1.0 + max(0, min(row.cap, row.left - 1))
        before, total = settings.optimism / _FALLING, 1.0
        gathered = [1.0]
        for place in range(self._longest):
            chance = others.matched[place] + before * _FALLING * settings.optimism_weight
            chance /= others.tried[place] + settings.optimism_weight
            chance = own.matched[place] + chance * settings.shared_weight
            chance /= own.tried[place] + settings.shared_weight
            total += chance
            before = chance
            gathered.append(min(total, most))
        return gathered


def _add(chances: Chances, drafted: int, path: Sequence[int], forget: float) -> None:
    for place in range(min(drafted, len(chances.tried))):
        chances.matched[place] *= forget
        chances.tried[place] = chances.tried[place] * forget + 1.0
    for row in path:
        chances.matched[row - 1] += 1.0
