"""What a parameter's JSON Schema says about text that a model wrote for it; strange parts of a schema say nothing."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from services.gateway.parsing.json_value import value_of
from services.gateway.parsing.python_value import PythonValue

MOST_STEPS = 200
"""Parts of one schema that are looked at."""

NAMES = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean",
    "dict": "object", "list": "array", "tuple": "array", "none": "null",
}  # fmt: skip
WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
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


class Arguments:
    """The schemas of a function's arguments, those of all branches of the whole together."""

    def __init__(self, schema: object) -> None:
        """Takes the schema of all arguments; what in it is strange says nothing."""
        self._root = schema
        self._named: dict[str, list[object]] = {}
        self._others: list[object] = []
        for one in _branches(schema, schema):
            named = one.get("properties")
            for key, argument in named.items() if isinstance(named, Mapping) else ():
                self._named.setdefault(key, []).append(argument)
            self._others.append(one.get("additionalProperties"))

    def expects(self, key: str) -> bool:
        """Whether an argument of this name is known, or none is."""
        return not self._named or key in self._named

    def kinds(self, key: str) -> Kinds:
        """What the argument of this name may be."""
        return kinds_of({"anyOf": self._named.get(key, self._others)}, self._root)


def kinds_of(schema: object, root: object) -> Kinds:
    """What a schema allows; `root` is where its references point into."""
    found = Kinds()
    for one in _branches(schema, root):
        _add(one, found)
    return found


def _branches(schema: object, root: object) -> Iterator[Mapping[str, Any]]:
    """A schema, what it refers to, and the branches of both."""
    steps = 0
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
        waiting += [one.get("then"), one.get("else")]
        yield one


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
    """What a reference points to, by a path or by an anchor; None where that is not in the schema itself."""
    base, _, fragment = reference.partition("#")
    if not isinstance(root, Mapping) or base not in ("", root.get("$id")):
        return None
    if fragment and not fragment.startswith("/"):
        return _anchored(root, fragment)
    place: object = root
    for step in unquote(fragment).strip("/").split("/") if fragment.strip("/") else ():
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = place.get(name)
        elif isinstance(place, list) and name in map(str, range(len(place))):
            place = place[int(name)]
        else:
            return None
    return place


def _anchored(root: Mapping[str, Any], anchor: str) -> object:
    for name in ("$defs", "definitions"):
        kept = root.get(name)
        for one in kept.values() if isinstance(kept, Mapping) else ():
            if isinstance(one, Mapping) and anchor == one.get("$anchor"):
                return one
    return None


def written(text: str, kinds: Kinds) -> str:
    """The value of a text as JSON. It is text wherever text is allowed, or where it is nothing that is allowed."""
    as_text = json.dumps(text, ensure_ascii=False)
    named = [value for value in kinds.values if isinstance(value, str)]
    if text in named:
        return as_text
    if text.strip() in named:
        return json.dumps(text.strip(), ensure_ascii=False)
    value = _word(text, kinds) or value_of(text) or _of_python(text, kinds)
    if value is None:
        return as_text
    parsed = json.loads(value)
    if same := [one for one in kinds.values if _same(parsed, one)]:
        return json.dumps(same[0], ensure_ascii=False)
    if kinds.is_text or "string" in kinds.types:
        return "null" if text.strip() == "null" and "null" in kinds.types else as_text
    return _other(value, text, kinds)


def _word(text: str, kinds: Kinds) -> str | None:
    """Python's and JSON's words in any case, where they mean something that is allowed."""
    word = WORDS.get(text.strip().lower(), "")
    kind = "null" if word == "null" else "boolean"
    return word if word and kind in kinds.types else None


def _of_python(text: str, kinds: Kinds) -> str | None:
    """A list, a tuple or a dictionary as Python writes it, where one is asked for and no text is."""
    asked = kinds.types & {"array", "object"} and not (kinds.is_text or "string" in kinds.types)
    return value_of(text, PythonValue) if asked and text.lstrip()[:1] in ("[", "{", "(") else None


def _other(value: str, text: str, kinds: Kinds) -> str:
    """A value where no text is allowed, or nothing is known: 140.0 is a whole number, and a bare word no string."""
    parsed = json.loads(value)
    if "integer" in kinds.types and isinstance(parsed, float) and parsed.is_integer():
        return str(int(parsed)) if abs(parsed) < 2**63 else value
    bare = isinstance(parsed, str) and not text.lstrip().startswith('"')
    return json.dumps(text, ensure_ascii=False) if bare else value


def _same(one: object, other: object) -> bool:
    """As JSON Schema compares: 1.0 is 1, and true is not."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return (numbers or type(one) is type(other)) and one == other
