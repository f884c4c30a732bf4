"""How many tokens rounds commit on a known text, as chains and as trees of drafts. Pure Python over a few numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True)
class Ranked:
    """The drafter's candidates at one anchor: by depth their ids, best first, and their log-probabilities."""

    ids: list[list[int]]
    scores: list[list[float]]


def chain_accepts(ranked: Ranked, truth: Sequence[int], rows: int) -> int:
    """Return how many drafts of a chain of so many rows, the anchor among them, are the text's."""
    right = 0
    for ids, token in zip(ranked.ids[: rows - 1], truth, strict=False):
        if ids[0] != token:
            break
        right += 1
    return right


def tree_accepts(ranked: Ranked, truth: Sequence[int], rows: int, candidates: int) -> int:
    """Return how many drafts the text follows in the tree of the nodes whose paths have the largest products.

    Nodes leave a heap in the order of their scores. Each brings its next sibling and its first child, so that a node
    never comes before its parent.
    """
    heap = [(-ranked.scores[0][0], 0, 0, 0.0, True)]
    right = 0
    for _ in range(rows - 1):
        if not heap:
            break
        negative, depth, rank, above, on_path = heappop(heap)
        scores = ranked.scores[depth]
        if rank + 1 < min(candidates, len(scores)):
            heappush(heap, (-(above + scores[rank + 1]), depth, rank + 1, above, on_path))
        follows = on_path and depth < len(truth) and ranked.ids[depth][rank] == truth[depth]
        if follows:
            right = max(right, depth + 1)
        if depth + 1 < len(ranked.scores):
            heappush(heap, (negative - ranked.scores[depth + 1][0], depth + 1, 0, -negative, follows))
    return right


def rounds_of(ranked: Sequence[Ranked], truth: Sequence[int], accepts: Callable[[Ranked, Sequence[int]], int]) -> int:
    """Return in how many rounds the text is committed; `ranked` are its anchors, `truth` the tokens behind each.

    The first anchor is given. A round commits what it accepts and one token more, none past the end.
    """
    rounds = anchor = 0
    while anchor < len(ranked):
        rounds += 1
        anchor += 1 + accepts(ranked[anchor], truth[anchor:])
    return rounds
