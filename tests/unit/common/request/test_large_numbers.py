"""Numbers in a schema that no answer can be exactly: refused before the library sees them, which some of them end."""

import json
import random
from typing import Any

import pytest

from services.common.request.errors import PacelineError, Reason
from services.common.request.schema_check import LARGEST, parsed

LEAST_OF_64_BITS, MOST_OF_64_BITS = -(1 << 63), (1 << 63) - 1


def fault(schema: Any) -> str:
    """Where and why a schema is refused; empty where it is taken."""
    try:
        parsed(json.dumps(schema), "f")
    except PacelineError as error:
        assert error.reason is Reason.INVALID_FIELD
        return error.message
    return ""


def numbers(seed: int) -> list[int | float]:
    """Numbers past the largest on both sides, those near the ends of 64 bits among them."""
    source = random.Random(seed)
    near = [end + sign * source.randrange(2000) for end in (LEAST_OF_64_BITS, MOST_OF_64_BITS) for sign in (-1, 1)]
    return [LEAST_OF_64_BITS, MOST_OF_64_BITS, LARGEST + 1, -LARGEST - 1, 1 << 200, 1e19, -1e300, *near]


def test_what_an_answer_would_have_to_be_is_no_number_beyond_exact_ones(seed: int) -> None:
    for number in numbers(seed):
        least, most = ("maximum", "exclusiveMaximum") if number < 0 else ("minimum", "exclusiveMinimum")
        for schema in (
            {"const": number},
            {"enum": ["a", number]},
            {"const": {"a": [1, {"b": number}]}},
            {"type": "integer", least: number},
            {"type": "number", most: number},
            {"allOf": [{"type": "integer", "minimum": LEAST_OF_64_BITS}, {least: number}]},
        ):
            assert "beyond 2^53" in fault(schema), schema
            assert "f#/properties/a" in fault({"properties": {"a": {"anyOf": [{"type": "null"}], **schema}}}), schema


@pytest.mark.parametrize(
    "schema",
    [
        {"const": LARGEST}, {"const": -LARGEST}, {"enum": [0.5, True, None]}, {"default": 1 << 70, "examples": [1e300]},
        {"properties": {"const": {"type": "null"}, "minimum": {"type": "null"}}},
        {"type": "integer", "minimum": LEAST_OF_64_BITS, "maximum": MOST_OF_64_BITS}, {"minimum": LARGEST},
    ],
)  # fmt: skip
def test_exact_numbers_wide_bounds_and_what_decides_nothing_are_taken(schema: dict[str, Any]) -> None:
    assert fault(schema) == ""
