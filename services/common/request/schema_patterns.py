"""Bounds of the patterns in a JSON Schema.

The library compares each two patterns of names, in a time that grows faster than their square: 600 of them took three
minutes. What must match several patterns it writes out, and each one more doubles the text.
"""

from typing import Any
from urllib.parse import unquote

MOST_NAMES = 32
"""Patterns of names in a schema."""
MOST_TOGETHER = 12
"""Patterns that one text must match; a format is as much as two."""
MOST_STEPS = 128
"""References that follow on one another."""


class Patterns:
    """Counts the patterns that must hold together, wherever references lead."""

    def __init__(self, schema: Any) -> None:
        """Takes the whole schema, for its references."""
        self._schema = schema
        self._known: dict[int, int] = {}
        self._names = 0

    def fault(self, part: Any) -> str | None:
        """What is wrong with a part; every part is asked about once."""
        if not isinstance(part, dict):
            return None
        named = part.get("patternProperties")
        if isinstance(named, dict) and all(isinstance(one, dict | bool) for one in named.values()):
            self._names += len(named)
        if self._names > MOST_NAMES:
            return f"states more than {MOST_NAMES} patterns of names in all"
        if self._together(part, 0) > MOST_TOGETHER:
            return f"asks for more than {MOST_TOGETHER} patterns at once"
        return None

    def _together(self, part: Any, steps: int) -> int:
        """Of one part: its own, all of `allOf` and of what it refers to, and the most of any choice."""
        if not isinstance(part, dict) or steps > MOST_STEPS:
            return MOST_TOGETHER + 1 if steps > MOST_STEPS else 0
        if (known := self._known.get(id(part))) is not None:
            return known
        self._known[id(part)] = 0  # what leads back here adds nothing
        count = ("pattern" in part) + 2 * ("format" in part)
        count += sum(self._together(one, steps + 1) for one in listed(part, "allOf"))
        if isinstance(reference := part.get("$ref"), str):
            count += self._together(at(self._schema, reference), steps + 1)
        for name in ("anyOf", "oneOf"):
            count += max((self._together(one, steps + 1) for one in listed(part, name)), default=0)
        self._known[id(part)] = min(count, MOST_TOGETHER + 1)
        return self._known[id(part)]


def at(schema: Any, reference: str) -> Any:
    """What a reference within a schema leads to; None for any other."""
    if not reference.startswith("#"):
        return None
    found = schema
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def listed(part: dict[str, Any], name: str) -> list[Any]:
    """What stands in a list of a part; nothing where there is none."""
    found = part.get(name)
    return found if isinstance(found, list) else []
