"""Bounds of a JSON Schema that a client sends, and where in it a fault lies."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from services.common.request.errors import invalid_field
from services.common.request.schema_multiples import MOST_MULTIPLE, Multiples, remainders
from services.common.request.schema_patterns import Patterns

DEEPEST = 64
"""Levels of a schema."""
MOST_PROPERTIES = 1000
"""Of one object: the time that a grammar of optional properties takes grows with their square."""
LONG_TEXT, LONG_TEXTS = 256, 8192
"""Bytes of a text that is long, and of all such texts that an answer is to hold: behind each of their characters an
automaton has a state as large as what is left of them.
"""
LARGEST = 1 << 53
"""Of numbers that an answer may have to be. Beyond it the library rounds them, and the smallest of 64 bits end the
process that it runs in, be they a `const` or all that bounds leave.
"""
MOST_LOOKS = 100
"""Parts of a schema that are compiled to find a fault."""

_LEAST, _MOST = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
_LITERAL = ("enum", "const", "pattern")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties", "additionalItems", "contains", "not", "if", "then", "else", "propertyNames")


def parsed(text: str, field: str) -> Any:
    """The schema that a text holds, within its bounds.

    Raises:
        PacelineError: INVALID_FIELD; the field ends with a pointer into the schema.
    """
    try:
        schema = json.loads(text)
        json.dumps(schema, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise invalid_field(field, "holds half a character") from None
    except (ValueError, RecursionError):
        raise invalid_field(field, "is not JSON, or is nested too deeply") from None
    if not isinstance(schema, dict | bool):
        raise invalid_field(field, "a JSON Schema is an object")
    patterns, multiples = Patterns(schema), Multiples(schema)
    for pointer, part, depth in _values(schema):
        if (fault := _fault(part, depth) or patterns.fault(part) or multiples.fault(part)) is not None:
            raise invalid_field(f"{field}#{pointer}", fault)
    check_texts(stated_texts(schema), field)
    return schema


def check_inside(grammar: str, field: str) -> None:
    """Checks the schemas that a grammar in Lark's syntax holds, as `parsed` does.

    Raises:
        PacelineError: INVALID_FIELD; the field ends with a pointer into the schema.
    """
    for marked in re.finditer(r"%json\b", grammar):
        rest = grammar[marked.end() :].lstrip()
        try:
            schema, _ = json.JSONDecoder().raw_decode(rest)
        except ValueError:  # it may stand in a text; else the library says so
            continue
        except RecursionError:
            raise invalid_field(field, "is nested too deeply") from None
        if isinstance(schema, dict):
            parsed(json.dumps(schema), field)


def check_texts(texts: Iterable[str], field: str) -> None:
    """Bounds the long ones among texts that an answer is to hold, all of them together.

    Raises:
        PacelineError: INVALID_FIELD, they are too long.
    """
    sizes = (len(text.encode(errors="surrogatepass")) for text in texts)
    if (found := sum(size for size in sizes if size > LONG_TEXT)) > LONG_TEXTS:
        told = f"states {found} bytes of texts that are longer than {LONG_TEXT}"
        raise invalid_field(field, f"{told}, at most {LONG_TEXTS} are allowed")


def stated_texts(schema: Any) -> Iterator[str]:
    """Names, patterns, and texts in `enum` and `const`; no annotations."""
    left: list[tuple[Any, bool]] = [(schema, False)]
    while left:
        part, literal = left.pop()
        if isinstance(part, str) and literal:
            yield part
        elif isinstance(part, list):
            left += [(one, literal) for one in part]
        elif isinstance(part, dict):
            yield from part
            left += [(value, literal or name in _LITERAL) for name, value in part.items()]


def culprit(schema: Any, fault: Callable[[Any], str]) -> tuple[str, str]:
    """A pointer to the smallest part of a schema that has a fault itself, and the fault.

    `fault` tells what is wrong with a whole schema; empty when nothing is.
    """
    pointer, found, root, looks = "", fault(schema), _moved(schema), 0
    left = [*_parts(schema)]
    while left and looks < MOST_LOOKS:
        (step, below), *left = left
        looks += 1
        place = quote(f"/$defs/root{pointer}{step}", safe="/~$")
        if said := fault({"$ref": f"#{place}", "$defs": {"root": root}}):
            pointer, found, left = pointer + step, said, [*_parts(below)]
    return pointer, found


def narrow(schema: Any) -> None:
    """Draws bounds of 64 bits in to `LARGEST`, which the library takes; what it allows then follows the schema."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
            for name, sign in (*((name, -1) for name in _LEAST), *((name, 1) for name in _MOST)):
                if isinstance(bound := part.get(name), int | float) and LARGEST < bound * sign <= 1 << 64:
                    part[name] = LARGEST * sign


def _fault(part: Any, depth: int) -> str | None:
    if depth > DEEPEST:
        return f"is nested deeper than {DEEPEST} levels"
    if not isinstance(part, dict):
        return None
    if len(part) > MOST_PROPERTIES:
        return f"{len(part)} entries, at most {MOST_PROPERTIES} are allowed"
    if (number := _beyond(part)) is not None:
        return f"asks for numbers beyond 2^53, such as {number}; state them as texts"
    step = part.get("multipleOf")
    if not 0 < remainders(step) <= MOST_MULTIPLE:
        return f"multipleOf {step} has more than {MOST_MULTIPLE} remainders"
    return None


def _beyond(part: dict[str, Any]) -> int | float | None:
    """A number of which, or past which, all are too large that a part of a schema allows; None where there is none."""
    listed = part.get("enum")  # an object there is no list of literals: a property has that name
    literals: list[Any] = [part.get("const"), *(listed if isinstance(listed, list) else ())]
    while literals:
        one = literals.pop()
        if isinstance(one, dict | list):
            literals += one.values() if isinstance(one, dict) else one
        elif isinstance(one, int | float) and abs(one) > LARGEST:
            return one
    bounds = [(part.get(name), 1) for name in _LEAST] + [(part.get(name), -1) for name in _MOST]
    numbers = ((bound, sign) for bound, sign in bounds if isinstance(bound, int | float))
    return next((bound for bound, sign in numbers if bound * sign > LARGEST), None)


def _values(schema: Any) -> Iterator[tuple[str, Any, int]]:
    """Every value in a schema with its pointer and level; a loop, for values may be nested deeper than calls."""
    left: list[tuple[str, Any, int]] = [("", schema, 1)]
    while left:
        pointer, value, depth = left.pop()
        yield pointer, value, depth
        if isinstance(value, dict):
            left += [(f"{pointer}/{_escaped(name)}", below, depth + 1) for name, below in value.items()]
        elif isinstance(value, list):
            left += [(f"{pointer}/{index}", below, depth + 1) for index, below in enumerate(value)]


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas that a schema holds, with the steps to them."""
    if not isinstance(schema, dict):
        return
    for key in _NAMED:
        if isinstance(named := schema.get(key), dict):
            yield from ((f"/{_escaped(key)}/{_escaped(name)}", below) for name, below in named.items())
    for key in _LISTED:
        if isinstance(listed := schema.get(key), list):
            yield from ((f"/{key}/{index}", below) for index, below in enumerate(listed))
    for key in _SINGLE:
        if isinstance(below := schema.get(key), dict | bool):
            yield f"/{key}", below


def _moved(value: Any) -> Any:
    """A schema whose references still hold when it lies below another one."""
    if isinstance(value, list):
        return [_moved(one) for one in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    inside = {name: _moved(below) for name, below in value.items()}
    if isinstance(reference, str) and reference.startswith("#"):
        inside["$ref"] = f"#/$defs/root{reference[1:]}"
    return inside


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
