"""JSON Schemas of the kinds that clients send, made from a seed: what JSONSchemaBench's collections consist of."""

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
PATTERNS = ("^[a-z]{2,6}$", r"^\d{3}-\d{4}$", "^(red|green|blue)$", "^[A-Z][a-z]*( [A-Z][a-z]*)?$")
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "email")
DEEPEST = 3


def schema(seed: int) -> Schema:
    """One schema; the same seed makes the same one."""
    source = random.Random(f"schema {seed}")
    made = _KINDS[seed % len(_KINDS)](source, 0)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _object(source: random.Random, depth: int) -> Schema:
    names = source.sample(["id", "name", "tags", "value", "é", "a/b", "with space", "~"], source.randint(1, 4))
    made: Schema = {"type": "object", "properties": {name: _any(source, depth + 1) for name in names}}
    made["required"] = names[: source.randint(0, len(names))]
    if source.random() < 0.7:
        made["additionalProperties"] = False
    elif source.random() < 0.5:
        made["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 9}
    return made


def _array(source: random.Random, depth: int) -> Schema:
    least = source.randint(0, 2)
    made: Schema = {"type": "array", "items": _any(source, depth + 1), "minItems": least}
    made["maxItems"] = least + source.randint(0, 3)
    if source.random() < 0.2:
        made["prefixItems"] = [_any(source, depth + 1)]
        made["minItems"], made["maxItems"] = 1, max(1, made["maxItems"])
    return made


def _string(source: random.Random, depth: int) -> Schema:
    kind = source.randrange(4)
    if kind == 0:
        return {"type": "string", "pattern": source.choice(PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": source.choice(FORMATS)}
    least = source.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + source.randint(0, 8)}


def _number(source: random.Random, depth: int) -> Schema:
    low = source.randint(-200, 100)
    high = low + source.randint(0, 300)
    made: Schema = {"type": source.choice(("integer", "number")), "minimum": low, "maximum": high}
    if source.random() < 0.3:
        made["exclusiveMaximum"] = made.pop("maximum") + 1
    if made["type"] == "integer" and source.random() < 0.2:
        made = {"type": "integer", "multipleOf": source.choice((2, 5, 10)), "minimum": 0, "maximum": 100}
    return made


def _enum(source: random.Random, depth: int) -> Schema:
    values = ["a", "b c", 'quo"te', "\\", "é", 1, -2.5, None, True, {"k": 1}, [1, "x"]]
    return {"enum": source.sample(values, source.randint(1, 5))} if source.random() < 0.8 else {"const": values[0]}


def _any_of(source: random.Random, depth: int) -> Schema:
    return {"anyOf": [_any(source, depth + 1) for _ in range(source.randint(2, 3))]}


def _nullable(source: random.Random, depth: int) -> Schema:
    return {"type": [source.choice(("string", "integer", "boolean")), "null"], "maxLength": 6, "minimum": 0}


def _reference(source: random.Random, depth: int) -> Schema:
    """Only at the top, where the pointer holds; the list that it describes may be nested in itself."""
    if depth:
        return _string(source, depth)
    node: Schema = {
        "type": "object",
        "properties": {
            "value": _number(source, depth + 2),
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        },
        "required": ["value", "next"],
        "additionalProperties": False,
    }
    return {"$ref": "#/$defs/node", "$defs": {"node": node}}


def _tagged(source: random.Random, depth: int) -> Schema:
    """What pydantic makes of a discriminated union."""
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, "it": _any(source, depth + 1)},
                "required": ["kind", "it"],
                "additionalProperties": False,
            }
            for kind in ("cat", "dog")
        ]
    }


def _any(source: random.Random, depth: int) -> Schema:
    leaves: list[Callable[[random.Random, int], Schema]] = [_string, _number, _enum, _nullable]
    return source.choice(leaves if depth >= DEEPEST else [*leaves, _object, _array, _any_of])(source, depth)


_KINDS = (_object, _array, _string, _number, _enum, _any_of, _reference, _nullable, _tagged, _object)
