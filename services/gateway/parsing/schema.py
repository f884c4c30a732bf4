"""What a parameter's JSON Schema says about text that a model wrote for it; strange parts of a schema say nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.gateway.parsing.json_value import value_of

MOST_STEPS = 200
"""Parts of one schema that are looked at."""

NAMES = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean",
    "dict": "object", "list": "array", "tuple": "array", "none": "null",
}  # fmt: skip
KNOWN = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


@dataclass(slots=True)
class Kinds:
    """Types that any branch allows, and values that enum and const name; nothing known leaves both empty."""

    types: set[str] = field(default_factory=set)
    values: list[Any] = field(default_factory=list)

    @property
    def is_text(self) -> bool:
        """Every value but null is text as it stands, so it can be passed on before it is whole."""
        texts = all(isinstance(value, str | None) for value in self.values)
        return texts and ("string" in self.types or (bool(self.values) and self.types <= {"null"}))


def kinds_of(schema: object, root: object) -> Kinds:
    """What a schema allows; `root` is where its references point into."""
    found, steps = Kinds(), 0
    waiting = [schema]
    seen: set[str] = set()
    while waiting and (steps := steps + 1) <= MOST_STEPS:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        reference = one.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            waiting.append(_referred(root, reference))
        for name in ("anyOf", "oneOf", "allOf"):
            branches = one.get(name)
            waiting += branches[:MOST_STEPS] if isinstance(branches, list) else []
        _add(one, found)
    return found


def _add(schema: Mapping[str, Any], found: Kinds) -> None:
    """What one part itself states. Values that are named say more than a type beside them."""
    named = schema.get("enum")
    values = [*named] if isinstance(named, list) else []
    values += [schema["const"]] if "const" in schema else []
    if values:
        found.values += values
        found.types |= {"null"} if None in values else set()
        return
    stated = schema.get("type")
    for name in stated if isinstance(stated, list) else [stated]:
        if isinstance(name, str):
            found.types |= {NAMES.get(name.lower(), name.lower())} & KNOWN
    if "type" in schema and not isinstance(stated, str | list):
        return
    if stated is None:
        found.types |= {"object"} if "properties" in schema else {"array"} if "items" in schema else set()
        found.types |= {"string"} if {"pattern", "minLength", "maxLength", "format"} & schema.keys() else set()


def _referred(root: object, reference: str) -> object:
    if not reference.startswith("#"):
        return None
    place = root
    for step in reference.lstrip("#").strip("/").split("/") if reference.strip("#/") else ():
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = place.get(name)
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return None
    return place


def written(text: str, kinds: Kinds) -> str:
    """The value of a text as JSON. It is text wherever text is allowed, or where it is nothing that is allowed."""
    as_text = json.dumps(text, ensure_ascii=False)
    if text in (value for value in kinds.values if isinstance(value, str)):
        return as_text
    value = value_of(text)
    if value is None:
        return as_text
    if any(_same(json.loads(value), one) for one in kinds.values):
        return value
    if kinds.is_text or "string" in kinds.types:
        return "null" if text.strip() == "null" and "null" in kinds.types else as_text
    return _other(value, text, kinds)


def _other(value: str, text: str, kinds: Kinds) -> str:
    """A value where no text is allowed, or nothing is known: 140.0 is a whole number, and a bare word no string."""
    parsed = json.loads(value)
    if "integer" in kinds.types and isinstance(parsed, float) and parsed.is_integer():
        return str(int(parsed)) if abs(parsed) < 2**63 else value
    bare = isinstance(parsed, str) and not text.lstrip().startswith('"')
    return json.dumps(text, ensure_ascii=False) if bare else value


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
