"""Patterns of a schema are bounded wherever they stand, for the library's time and memory grow with each of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.common.request.schema_check import parsed
from services.common.request.schema_patterns import MOST_NAMES, MOST_STEPS, MOST_TOGETHER

Schema = dict[str, Any]


def text(number: int) -> Schema:
    """A text with a pattern of its own."""
    return {"type": "string", "pattern": f"^[a-z]*{number}$"}


def within(schemas: list[Schema]) -> Schema:
    """All in one another."""
    first, *rest = schemas
    return first | {"allOf": [within(rest)]} if rest else first


def chain(schemas: list[Schema]) -> Schema:
    """Each refers to the next one."""
    named = {f"d{at}": one | {"$ref": f"#/$defs/d{at + 1}"} for at, one in enumerate(schemas[:-1])}
    return {"$defs": {**named, f"d{len(schemas) - 1}": schemas[-1]}, "$ref": "#/$defs/d0"}


def ring(schemas: list[Schema]) -> Schema:
    """Each refers to the next one, the last to the first."""
    count = len(schemas)
    named = {f"d{at}": one | {"$ref": f"#/$defs/d{(at + 1) % count}"} for at, one in enumerate(schemas)}
    return {"$defs": named, "$ref": "#/$defs/d0"}


def listed(schemas: list[Schema]) -> Schema:
    """All of references into a list."""
    return {
        "$defs": {"a/b": {"anyOf": schemas}},
        "allOf": [{"$ref": f"#/$defs/a~1b/anyOf/{at}"} for at in range(len(schemas))],
    }


TOGETHER: dict[str, Callable[[list[Schema]], Schema]] = {
    "allOf": lambda schemas: {"allOf": schemas},
    "within one another": within,
    "a chain": chain,
    "a ring": ring,
    "references": listed,
    "choices": lambda schemas: {"allOf": [{"anyOf": [one, {"type": "string"}]} for one in schemas]},
    "below a property": lambda schemas: {"properties": {"a": {"items": {"oneOf": [{"allOf": schemas}]}}}},
}
APART: dict[str, Callable[[list[Schema]], Schema]] = {
    "properties": lambda schemas: {"properties": {str(at): one for at, one in enumerate(schemas)}},
    "anyOf": lambda schemas: {"anyOf": schemas},
    "allOf of properties": lambda schemas: {
        "allOf": [{"properties": {str(at): one}} for at, one in enumerate(schemas)]
    },
}


def refused(schema: Schema) -> str:
    """What is said of it; empty when it is taken."""
    try:
        parsed(json.dumps(schema), "f")
    except PacelineError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("form", TOGETHER)
def test_so_many_patterns_may_hold_together(form: str) -> None:
    for count in range(1, 2 * MOST_TOGETHER):
        told = refused(TOGETHER[form]([text(number) for number in range(count)]))
        assert ("patterns at once" in told) is (count > MOST_TOGETHER), (count, told)


def test_a_format_is_as_much_as_two_patterns() -> None:
    for count in range(1, MOST_TOGETHER):
        told = refused({"allOf": [{"type": "string", "format": "date"}] * count})
        assert ("patterns at once" in told) is (2 * count > MOST_TOGETHER), count


@pytest.mark.parametrize("form", APART)
def test_any_number_of_patterns_may_stand_apart(form: str) -> None:
    assert not refused(APART[form]([text(number) for number in range(4 * MOST_TOGETHER)]))


def test_so_many_patterns_of_names_are_compared() -> None:
    for places in (1, 2, 5):
        for count in range(MOST_NAMES - 3, MOST_NAMES + 4):
            names: list[Schema] = [{} for _ in range(places)]
            for number in range(count):
                names[number % places][f"^p{number}[a-z]*$"] = {"type": "string"}
            schema = {"allOf": [{"type": "object", "patternProperties": one} for one in names]}
            assert ("patterns of names" in refused(schema)) is (count > MOST_NAMES), (places, count)


def test_references_end() -> None:
    for count in (MOST_STEPS - 1, 1000):
        schema = chain([{"type": "string"}] * count)
        assert bool(refused(schema)) is (count > MOST_STEPS)
    for reference in ("#", "#/$defs/none", "https://a.example/b", "#/allOf/9", "#/allOf/x"):
        assert not refused({"allOf": [{"$ref": reference}, text(1)]})
