"""Chooses of a test's crossed parameters as few cases as have each value once.

A bug that one value is enough for is met as in the whole product.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

import pytest


def covering(cases: Sequence[Sequence[str]]) -> list[int]:
    """Places of cases, of which each tells the value of every parameter; those with the most new values come first."""
    values = [set(enumerate(case)) for case in cases]
    missing = set[tuple[int, str]]().union(*values)
    chosen: list[int] = []
    while missing:
        place = max(range(len(cases)), key=lambda each: (len(missing & values[each]), -each))
        chosen.append(place)
        missing -= values[place]
    return sorted(chosen)


def keep_covering(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves of every function's cases those that cover its parameters; lists of several parameters count as one."""
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    kept = {own[place] for own in functions.values() for place in covering([_values(item) for item in own])}
    left = [item for item in items if item not in kept]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item in kept]


def _values(item: pytest.Item) -> Sequence[str]:
    callspec = getattr(item, "callspec", None)
    return cast("Sequence[str]", cast("Any", callspec)._idlist) if callspec else ("",)
