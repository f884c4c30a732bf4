"""Numbers in a schema that no answer can be exactly: refused before the library sees them, which some of them end."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import PacelineError, Reason
from services.common.request.grammar import Grammars, inline
from services.common.request.schema_check import LARGEST, parsed

LEAST_OF_64_BITS, MOST_OF_64_BITS = -(1 << 63), (1 << 63) - 1


TOKENIZER = Path(__file__).parents[4] / "models" / "embedded" / "target" / "tokenizer.json"


@cache
def grammars() -> Grammars:
    return Grammars(TOKENIZER.read_text("utf-8"), 1024, (0,))


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
        {"properties": {name: {"type": "integer", "maximum": MOST_OF_64_BITS} for name in ("enum", "minimum")}},
        {"type": "integer", "minimum": LEAST_OF_64_BITS, "maximum": MOST_OF_64_BITS}, {"minimum": LARGEST},
    ],
)  # fmt: skip
def test_exact_numbers_wide_bounds_and_what_decides_nothing_are_taken(schema: dict[str, Any]) -> None:
    assert fault(schema) == ""


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": LEAST_OF_64_BITS, "maximum": MOST_OF_64_BITS}, {"minimum": 0, "maximum": (1 << 64) - 1},
        {"exclusiveMinimum": -1e18}, {"exclusiveMaximum": 1e19}, {"maximum": 1 << 64},
    ],
)  # fmt: skip
def test_bounds_of_64_bits_are_drawn_in_and_the_clients_schema_stays(kind: str, bounds: dict[str, Any]) -> None:
    """Languages with integers of 64 bits state them for each of their fields."""
    schema = {"type": "object", "properties": {"a": {"type": kind, **bounds}}}
    given = json.dumps(schema)
    grammars().rule(Constraint(Form.JSON, given, "f"))
    assert str(LARGEST) in inline(schema) and json.dumps(schema) == given


def test_a_schema_inside_a_grammar_has_the_same_bounds() -> None:
    for inside in ('{"const": -9223372036854775807}', '{"enum": ', "x"):
        with pytest.raises(PacelineError) as refused:
            grammars().rule(Constraint(Form.GRAMMAR, f'start: "a" %json {inside}\n', "f"))
        assert refused.value.reason is Reason.INVALID_FIELD
    grammars().rule(Constraint(Form.GRAMMAR, 'start: "a" | b\nb: %json {"const": "%json x"}\n', "f"))


def test_a_schema_that_is_only_itself_is_refused_in_words() -> None:
    with pytest.raises(PacelineError, match="refers to itself"):
        grammars().rule(Constraint(Form.JSON, '{"$ref": "#"}', "f"))
