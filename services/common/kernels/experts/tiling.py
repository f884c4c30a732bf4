"""How products of experts are cut; no cut changes a bit. None was measured on a GPU yet."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tiling:
    """A tile is `rows` rows of one expert by `band` lines of its weight, `depth` columns at a time.

    With `ahead` the second product fetches its weights while the first one runs.
    """

    rows: int
    band: int = 64
    depth: int = 64
    warps: int = 4
    stages: int = 4
    ahead: bool = False


def tiling(pairs: int, experts: int) -> Tiling:
    """Return the cut for so many pairs of row and rank: tiles have some more rows than an expert gets on average."""
    average = -(-pairs // experts)
    if average <= 8:
        return Tiling(16)
    if average <= 32:
        return Tiling(32)
    return Tiling(64, band=128, stages=3) if average <= 64 else Tiling(128, band=128, warps=8, stages=3)


def most_tiles(pairs: int, experts: int, cut: Tiling) -> int:
    """Return how many tiles there are at most: each expert that is chosen may have one that is not full."""
    return min(experts, pairs) + pairs // cut.rows
