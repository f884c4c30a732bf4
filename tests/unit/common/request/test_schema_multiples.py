"""Multiples of a schema are bounded where they hold together, and where a number may be of any of them."""

import json
from math import lcm
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.common.request.schema_check import parsed
from services.common.request.schema_multiples import FEW, MOST_MULTIPLE, remainders

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)


def refused(schema: dict[str, Any]) -> str:
    """What is said of it; empty when it is taken."""
    try:
        parsed(json.dumps(schema), "f")
    except PacelineError as error:
        return str(error)
    return ""


def whole(step: float) -> dict[str, Any]:
    """A number with a step."""
    return {"type": "number", "multipleOf": step}


@pytest.mark.parametrize("form", ["allOf", "within", "chain", "choices"])
def test_multiples_that_hold_together_have_few_remainders(form: str) -> None:
    for count in range(1, len(PRIMES)):
        parts = [whole(step) for step in PRIMES[:count]]
        schema: dict[str, Any] = {"allOf": parts}
        if form == "within":
            schema = parts[0]
            for part in parts[1:]:
                schema = part | {"allOf": [schema]}
        elif form == "chain":
            named = {f"d{at}": part | {"$ref": f"#/$defs/d{at + 1}"} for at, part in enumerate(parts)}
            schema = {"$defs": named | {f"d{count}": {}}, "$ref": "#/$defs/d0"}
        elif form == "choices":
            schema = {"allOf": [{"anyOf": [part, {"type": "null"}]} for part in parts]}
        assert ("together" in refused(schema)) is (lcm(*PRIMES[:count]) > MOST_MULTIPLE), count


@pytest.mark.parametrize("form", ["anyOf", "oneOf", "deep", "refs"])
def test_multiples_of_a_choice_have_few_remainders(form: str) -> None:
    for first in (1, 4, 100, 4000, 9000):
        for count in range(1, 7):
            steps = [first + number for number in range(count)]
            parts = [whole(step) for step in steps]
            schema: dict[str, Any] = {"oneOf" if form == "oneOf" else "anyOf": parts}
            if form == "deep":
                schema = {"anyOf": [{"type": "array", "items": {"properties": {"a": part}}} for part in parts]}
            elif form == "refs":
                named = {str(at): part for at, part in enumerate(parts)}
                schema = {"$defs": named, "anyOf": [{"$ref": f"#/$defs/{at}"} for at in range(count)]}
            counted = {remainders(step) for step in steps} - {1}
            many = sum(counted) if len(counted) < FEW else lcm(*counted)
            assert ("in all" in refused(schema)) is (many > MOST_MULTIPLE), (first, count)


def test_multiples_of_properties_stand_apart() -> None:
    assert not refused({"type": "object", "properties": {str(step): whole(9000 + step) for step in range(50)}})


def test_remainders_are_counted_in_the_last_decimal() -> None:
    for step, count in (
        (1, 1),
        (0.01, 1),
        (0.25, 25),
        (2.5, 25),
        (60, 60),
        (True, 1),
        ("x", 1),
        (None, 1),
        (10**12, 0),
    ):
        assert remainders(step) == count, step
