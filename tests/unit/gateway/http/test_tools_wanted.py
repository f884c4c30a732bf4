"""Calls that are required, a form that is stated, and either."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import PacelineError
from services.common.request.grammar import Grammars
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.parsing.form import chosen

TOKENIZER = Path(__file__).parents[4] / "models" / "embedded" / "target" / "tokenizer.json"
TOWN = {
    "type": "object",
    "properties": {"town": {"type": "string"}},
    "required": ["town"],
    "additionalProperties": False,
}
CALL = '<tool_call>\n{"name": "f", "arguments": {"town": "Rome"}}\n</tool_call>'
LOOSE = '<tool_call>\n{"name": "f", "arguments": {"other": 1}}\n</tool_call>'
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": TOWN}}


@cache
def grammars() -> Grammars:
    return Grammars(TOKENIZER.read_text("utf-8"), 1024, (0,))


def constraint(**fields: Any) -> Constraint | None:
    tool = {"type": "function", "function": {"name": "f", "parameters": TOWN}}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]} | fields
    return chat_query(ChatBody.model_validate(body), Headers(), chosen("", "hermes")).constraint


def takes(found: Constraint, text: str) -> bool:
    """Whether a text is a whole answer."""
    grammar = grammars().grammar(grammars().rule(found))
    matcher, ids = grammar.matcher(), grammars()._tokenizer.tokenize_str(text)
    return matcher.consume_tokens(ids) and matcher.is_accepting() and not matcher.is_error()


def test_a_form_beside_tools_leaves_both_ways() -> None:
    found = constraint(response_format=FORMAT)
    assert found is not None
    assert takes(found, '{"town": "Rome"}')
    assert takes(found, CALL)
    assert takes(found, f"{CALL}\n{LOOSE}"), "arguments of a tool that is not strict are any object"
    assert not takes(found, '{"town": 1}')
    assert not takes(found, "Well.")
    one = constraint(response_format=FORMAT, parallel_tool_calls=False)
    assert one is not None and not takes(one, f"{CALL}\n{CALL}")


def test_a_strict_tool_keeps_its_schema_beside_a_form() -> None:
    strict = {"type": "function", "function": {"name": "f", "parameters": TOWN, "strict": True}}
    found = constraint(response_format=FORMAT, tools=[strict])
    assert found is not None
    assert takes(found, CALL)
    assert not takes(found, LOOSE)


def test_a_required_call_leaves_a_form_no_place() -> None:
    found = constraint(response_format=FORMAT, tool_choice="required")
    assert found is not None
    assert takes(found, CALL)
    assert not takes(found, '{"town": "Rome"}')


def test_no_tools_or_no_form_of_calls_leave_the_form_alone() -> None:
    for fields in ({"tools": None}, {"tool_choice": "none"}):
        found = constraint(response_format=FORMAT, **fields)
        assert found == Constraint(Form.JSON, json.dumps(TOWN), "response_format.json_schema.schema")
    assert constraint() is None


@pytest.mark.parametrize("fields", [{"guided_regex": "a"}, {"structured_outputs": {"choice": ["a"]}}])
def test_other_forms_contradict_a_required_call(fields: dict[str, Any]) -> None:
    with pytest.raises(PacelineError, match="stands beside tool_choice"):
        constraint(tool_choice="required", **fields)
