"""How products of experts are cut, as an H200 was quickest with those of Qwen3-30B-A3B; no cut changes a bit."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tiling:
    """A tile is `rows` rows of one expert by `band` lines of its weight, `depth` columns of two bytes at a time.

    Where an expert has some `more` rows than a tile, they are a second product of the same tile. The last product is
    short: it may have fewer stages, so that more of its programs run at once.
    """

    rows: int
    band: int = 64
    depth: int = 64
    warps: int = 4
    stages: int = 4
    more: int = 0
    last_stages: int = 0

    @property
    def last(self) -> "Tiling":
        """The cut of the last product."""
        return replace(self, stages=self.last_stages or self.stages)

    @property
    def places(self) -> int:
        """Rows that a tile has room for."""
        return self.rows + self.more


_FEW = 16
"""Pairs up to which programs are so few that each must have more on its way."""


def tiling(pairs: int, experts: int, coded: bool = False) -> Tiling:
    """Return the cut for so many pairs of row and rank: tiles have some more rows than an expert gets on average.

    Weights that are codes have half the bytes a step, and are widened before they are multiplied.
    """
    average = -(-pairs // experts)
    if coded:
        return _coded(pairs, average)
    if average <= 32:
        return Tiling(16 if average <= 8 else 32, depth=128, stages=4 if pairs <= _FEW else 3, last_stages=3)
    return Tiling(64, band=128, stages=3) if average <= 64 else Tiling(128, band=256, warps=8, more=32)


def _coded(pairs: int, average: int) -> Tiling:
    if average <= 16:
        return Tiling(16 if average <= 8 else 32, depth=128, stages=4 if pairs <= _FEW else 3)
    return Tiling(64, band=128, depth=128, stages=3) if average <= 64 else Tiling(128, 128, 128, 8, 3, more=32)


def in_tiles(pairs: int, experts: int) -> Tiling | None:
    """Return another cut of numbers where CUDA C++ serves: so few experts have more rows than a tile; None: none."""
    average = -(-pairs // experts)
    return Tiling(64, band=128, stages=3, more=32 if average > 32 else 0) if 16 < average <= 64 else None


def most_tiles(pairs: int, experts: int, cut: Tiling) -> int:
    """Return how many tiles there are at most: each expert that is chosen may have one that is not full."""
    return min(experts, pairs) + pairs // cut.places
