"""A median and how sure it is, without assumptions about the distribution."""

import statistics
from collections.abc import Sequence
from math import comb

_COVERAGE = 0.9


def interval(values: Sequence[float]) -> dict[str, float]:
    """The median between two of the sorted values that enclose the true one with at least nine tenths' certainty.

    So few values that none do give the smallest and the largest; `coverage` is what they enclose.
    """
    ordered, count = sorted(values), len(values)
    cut = 0
    while cut + 1 < count - cut - 1 and _coverage(count, cut + 1) >= _COVERAGE:
        cut += 1
    return {
        "median": round(statistics.median(ordered), 3),
        "low": round(ordered[cut], 3),
        "high": round(ordered[count - 1 - cut], 3),
        "coverage": round(_coverage(count, cut), 3),
    }


def _coverage(count: int, cut: int) -> float:
    """The chance that the median lies between the sorted values `cut` from either end."""
    return 1.0 - 2.0 * float(sum(comb(count, below) for below in range(cut + 1))) / 2.0**count
