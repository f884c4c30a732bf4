"""Few cells of a table of settings in which every pair of values meets at least once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product

Cell = dict[str, int]
Pair = tuple[tuple[str, int], tuple[str, int]]


def pairwise(factors: Mapping[str, Sequence[int]]) -> list[Cell]:
    """Chooses cells one by one: with most pairs that none before it has, and among equals of the rarest values."""
    every = [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]
    left = {pair for cell in every for pair in pairs_of(cell)}
    used: Counter[tuple[str, int]] = Counter()

    def gain(cell: Cell) -> tuple[int, int]:
        return len(left.intersection(pairs_of(cell))), -sum(used[value] for value in cell.items())

    chosen: list[Cell] = []
    while left:
        best = max(every, key=gain)
        chosen.append(best)
        left.difference_update(pairs_of(best))
        used.update(best.items())
    return chosen


def pairs_of(cell: Cell) -> list[Pair]:
    """Every two settings of a cell."""
    return list(combinations(cell.items(), 2))
