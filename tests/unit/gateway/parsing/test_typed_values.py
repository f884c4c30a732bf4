"""Values are typed by the whole schema: whatever wraps a type, it is the type, and text wherever a branch allows it."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from services.gateway.parsing.calls import CallSplitter
from services.gateway.parsing.form import chosen
from services.gateway.parsing.json_value import value_of
from services.gateway.parsing.output import CallEnd, CallPiece, Ending
from tests.support.cases import each
from tests.unit.gateway.parsing.slips import xml

Schema = dict[str, Any]
LEAVES: dict[str, tuple[Schema, dict[str, Any]]] = {
    "integer": ({"type": "integer"}, {"12": 12, "140.0": 140, "-3": -3, "1e2": 100, "x": "x", "1.5": 1.5}),
    "number": ({"type": "number"}, {"2.50": 2.5, "140.0": 140.0, "NaN": "NaN", "-inf": "-inf", "7": 7}),
    "boolean": ({"type": "boolean"}, {"true": True, "True": True, "FALSE": False, "yes": "yes", "1": 1}),
    "null": ({"type": "null"}, {"null": None, "None": None, "NULL": None}),
    "object": ({"type": "object"}, {'{"a": 1}': {"a": 1}, "{'a': None}": {"a": None}, "{}": {}, "a": "a"}),
    "array": ({"type": "array"}, {"[1, 'b']": [1, "b"], "[]": [], "a, b": "a, b"}),
    "enum": ({"enum": [1, "a", None, True]}, {"1": 1, "1.0": 1, "a": "a", " a ": "a", "true": True, '"a"': "a"}),
    "const": ({"const": 5}, {"5": 5, "5.0": 5}),
    "text": ({"type": "string"}, {"03106": "03106", "true": "true", "null": "null", "[1]": "[1]", "5.0": "5.0"}),
    "named texts": ({"enum": ["1", "true"]}, {"1": "1", "true": "true"}),
}
DEFINITION = "a b/c~d"
POINTER = "#/$defs/a%20b~1c~0d"
WRAPS: dict[str, Callable[[Schema], tuple[Schema, Schema]]] = {
    "alone": lambda leaf: (leaf, {}),
    "anyOf": lambda leaf: ({"anyOf": [{"description": "x"}, leaf]}, {}),
    "oneOf": lambda leaf: ({"oneOf": [leaf]}, {}),
    "allOf": lambda leaf: ({"allOf": [leaf, {"title": "x"}]}, {}),
    "nested": lambda leaf: ({"anyOf": [{"oneOf": [{"allOf": [leaf]}]}]}, {}),
    "reference": lambda leaf: ({"$ref": POINTER}, {"$defs": {DEFINITION: leaf}}),
    "anchor": lambda leaf: ({"$ref": "#place"}, {"$defs": {"x": leaf | {"$anchor": "place"}}}),
    "two references": lambda leaf: (
        {"$ref": "#/$defs/one"},
        {"$defs": {"one": {"$ref": "#/definitions/two"}}, "definitions": {"two": leaf}},
    ),
    "a loop": lambda leaf: ({"$ref": "#/$defs/one"}, {"$defs": {"one": {"anyOf": [{"$ref": "#/$defs/one"}, leaf]}}}),
}
TOPS: dict[str, Callable[[Schema], Schema]] = {
    "properties": lambda argument: {"properties": {"p": argument}},
    "by reference": lambda argument: {"$ref": "#/$defs/top", "$defs": {"top": {"properties": {"p": argument}}}},
    "in a branch": lambda argument: {"allOf": [{"properties": {"q": {}}}, {"properties": {"p": argument}}]},
    "in all others": lambda argument: {"properties": {"q": {}}, "additionalProperties": argument},
}
STRANGE: list[Any] = [
    5, None, True, [], "x", {"type": 5}, {"type": [{"a": 1}]}, {"type": {}}, {"enum": {}}, {"enum": [[1], {"a": 1}]},
    {"anyOf": 1}, {"anyOf": [5, None, "x"]}, {"$ref": 5}, {"$ref": "#/" + "9" * 5000}, {"$ref": "#/$defs/0/x"},
    {"$ref": "#nowhere"}, {"$ref": "other.json#/a"}, {"$ref": "#"}, {"const": {}}, {"allOf": [[[]]]}, {"$ref": "%"},
    {"properties": 5}, {"type": "strange"}, {"then": 1}, {"pattern": 5}, {"type": "String"}, {"items": {"items": 5}},
]  # fmt: skip


def value(schema: Any, text: str) -> Any:
    """What a call has for a text, read in single characters."""
    splitter = CallSplitter(chosen("", "qwen_xml"), {"f": schema})
    parts = [part for one in xml("f", {"p": text}) for part in splitter.push(one)]
    parts += splitter.finish(Ending.ITSELF)
    assert any(isinstance(part, CallEnd) for part in parts)
    return json.loads("".join(part.text for part in parts if isinstance(part, CallPiece)))["p"]


def merged(top: Schema, more: Schema) -> Schema:
    return top | more | {"$defs": top.get("$defs", {}) | more.get("$defs", {})}


@each(("wrap", "top"), [*product(WRAPS, TOPS)])
def test_a_value_has_its_type_however_it_is_wrapped(wrap: str, top: str) -> None:
    for name, (leaf, texts) in LEAVES.items():
        argument, more = WRAPS[wrap](leaf)
        schema = merged(TOPS[top](argument), more)
        for text, expected in texts.items():
            found = value(schema, text)
            assert (found, type(found)) == (expected, type(expected)), (name, text)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_value_is_text_wherever_a_branch_allows_text(wrap: str) -> None:
    text, more = WRAPS[wrap]({"type": "string"})
    for leaf, texts in LEAVES.values():
        if "enum" in leaf or "const" in leaf or leaf["type"] == "null":
            continue  # values that are named say more than a text beside them
        for argument in ({"anyOf": [leaf, text]}, {"oneOf": [text, leaf, {"type": "number"}]}):
            assert all(value({"properties": {"p": argument}} | more, one) == one for one in texts)


@each(
    ("text", "number"),
    [
        ("+5", "5"),
        ("007", "7"),
        ("-007", "-7"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("5.", "5.0"),
        ("+0", "0"),
        ("00", "0"),
        ("+1e3", "1e3"),
        ("01.50", "1.50"),
        ("+12345678901234567890123", "12345678901234567890123"),
        ("1e2", "1e2"),
        ("0.1000000000000000055", "0.1000000000000000055"),
        ("0" * 40 + "9", "9"),
        ("+.0e-1", "0.0e-1"),
    ],
)
def test_a_number_that_json_writes_otherwise_keeps_its_digits(text: str, number: str) -> None:
    """Also in calls that are JSON; where a whole number is wanted it is one."""
    assert value_of(text) == number
    splitter = CallSplitter(chosen("", "hermes"), {})
    parts = splitter.push(f'<tool_call>{{"name": "f", "arguments": {{"p": {text}}}}}</tool_call>')
    told = "".join(part.text for part in [*parts, *splitter.finish(Ending.ITSELF)] if isinstance(part, CallPiece))
    assert json.loads(told)["p"] == json.loads(number)
    assert f" {number}" in told


@each("index", range(len(STRANGE)))
def test_a_strange_schema_says_nothing(index: int) -> None:
    strange = STRANGE[index]
    for schema in (strange, {"properties": strange}, {"properties": {"p": strange}}, {"allOf": [strange]}):
        assert value(schema, "a text") == "a text"
