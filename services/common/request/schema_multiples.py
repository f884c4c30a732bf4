"""Bounds of `multipleOf` where several hold together, or where a number may be of any of several.

An automaton has a state for each remainder. Of two multiples that hold together it has one for each pair of remainders:
with 9973 and 9967 that took more than a gigabyte. Of three alternatives near 333 it did not end in four seconds.
"""

from math import lcm
from typing import Any

from services.common.request.schema_patterns import MOST_STEPS, at, listed

MOST_MULTIPLE = 10_000
"""Remainders of the largest `multipleOf`, of all that hold together, and of all in one choice; of two there, in sum."""

FEW = 3
"""Multiples of a choice, of fewer than which the library makes no sets."""


def remainders(step: object) -> int:
    """How many a step has, counted in its last decimal; 1 for what is no step, 0 where they are not counted."""
    if isinstance(step, bool) or not isinstance(step, int | float):
        return 1
    digits = f"{step:f}".rstrip("0").rstrip(".").replace(".", "").lstrip("-0") if isinstance(step, float) else str(step)
    return max(abs(int(digits or 0)), 1) if len(digits) < 10 else 0


class Multiples:
    """Multiplies what holds together and adds up what stands in a choice, wherever references lead."""

    def __init__(self, schema: Any) -> None:
        """Takes the whole schema, for its references."""
        self._schema = schema
        self._together: dict[int, int] = {}
        self._within: dict[int, frozenset[int]] = {}

    def fault(self, part: Any) -> str | None:
        """What is wrong with a part."""
        if not isinstance(part, dict):
            return None
        if ("allOf" in part or "$ref" in part) and self._product(part, 0) > MOST_MULTIPLE:
            return f"asks for multiples that have more than {MOST_MULTIPLE} remainders together"
        for name in ("anyOf", "oneOf"):
            found = frozenset[int]().union(*(self._all(one, 0) for one in listed(part, name)))
            if (sum(found) if len(found) < FEW else lcm(*found)) > MOST_MULTIPLE:
                return f"offers multiples that have more than {MOST_MULTIPLE} remainders in all"
        return None

    def _product(self, part: Any, steps: int) -> int:
        """Remainders of one part: its own, those of all that it refers to, and those of any of its choices."""
        if not isinstance(part, dict) or steps > MOST_STEPS:
            return 1
        if (known := self._together.get(id(part))) is None:
            self._together[id(part)] = 1  # what leads back here adds nothing
            below = [one for name in ("allOf", "anyOf", "oneOf") for one in listed(part, name)]
            found = lcm(max(remainders(part.get("multipleOf")), 1), *(self._product(one, steps + 1) for one in below))
            if isinstance(reference := part.get("$ref"), str):
                found = lcm(found, self._product(at(self._schema, reference), steps + 1))
            known = self._together[id(part)] = min(found, MOST_MULTIPLE + 1) if found > MOST_MULTIPLE else found
        return known

    def _all(self, value: Any, steps: int) -> frozenset[int]:
        """Remainders of all multiples in a value, as far as references and values lead from there."""
        if not isinstance(value, dict | list) or steps > MOST_STEPS:
            return frozenset()
        if (known := self._within.get(id(value))) is None:
            self._within[id(value)] = frozenset()
            below = list(value.values()) if isinstance(value, dict) else value
            found = frozenset[int]().union(*(self._all(one, steps + 1) for one in below))
            if isinstance(value, dict):
                if (own := remainders(value.get("multipleOf"))) > 1:
                    found |= {own}
                if isinstance(reference := value.get("$ref"), str):
                    found |= self._all(at(self._schema, reference), steps + 1)
            known = self._within[id(value)] = found
        return known
