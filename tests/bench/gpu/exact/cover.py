"""Few cells of a table of settings in which every pair of values meets at least once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

Cell = dict[str, int]
Pair = tuple[tuple[str, int], tuple[str, int]]


def pairwise(factors: Mapping[str, Sequence[int]]) -> list[Cell]:
    """Chooses cells one by one, each the first with most pairs that none before it has."""
    every = [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]
    left = {pair for cell in every for pair in pairs_of(cell)}
    chosen: list[Cell] = []
    while left:
        best = max(every, key=lambda cell: len(left.intersection(pairs_of(cell))))
        chosen.append(best)
        left.difference_update(pairs_of(best))
    return chosen


def pairs_of(cell: Cell) -> list[Pair]:
    """Every two settings of a cell."""
    return list(combinations(cell.items(), 2))
