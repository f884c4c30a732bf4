"""A chat from the wire: what templates get of it, and refusals that name the field."""

from typing import Any

import pytest
from google.protobuf import json_format

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import Code, PacelineError
from services.common.request.limits import LIMITS
from services.gateway.grpc.questions import prompt
from services.gateway.intake.query import ChatPrompt
from tests.support.cases import each

USER = {"role": "user", "content": "hi"}
CALL: dict[str, Any] = {"id": "c1", "name": "f", "arguments": '{"a": [1, null]}'}
ASKED: dict[str, Any] = {"role": "assistant", "tool_calls": [CALL]}
ANSWER = {"role": "tool", "content": "1", "tool_call_id": "c1", "name": "f"}
TOOL: dict[str, Any] = {"name": "f", "description": "d", "parameters": '{"type": "object", "b": 1, "a": 2}'}


def chat(**fields: Any) -> ChatPrompt:
    made = prompt(json_format.ParseDict({"chat": {"messages": [USER]} | fields}, inference_pb2.Prompt()))
    assert isinstance(made, ChatPrompt)
    return made


def test_messages_of_tools_and_calls_arrive_as_templates_read_them() -> None:
    made = chat(messages=[USER, ASKED, ANSWER], tools=[TOOL])
    function = {"name": "f", "arguments": {"a": [1, None]}}
    asked = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "c1", "function": function}]}
    assert made.messages == (USER, asked, ANSWER)
    tool = {"name": "f", "description": "d", "parameters": {"type": "object", "b": 1, "a": 2}}
    (first,) = made.tools
    assert first == {"type": "function", "function": tool}
    assert [*first["function"]["parameters"]] == ["type", "b", "a"]
    assert made.size > len(CALL["arguments"] + TOOL["parameters"])


def test_arguments_keep_their_types() -> None:
    given = {"a": {"flag": False}, "b": {"integer": "2"}, "c": {"number": 2.0}, "d": {"text": "x"}}
    found = chat(template_arguments=given).arguments
    assert [(name, type(value), value) for name, value in found.items()] == [
        ("a", bool, False), ("b", int, 2), ("c", float, 2.0), ("d", str, "x"),
    ]  # fmt: skip


@each(
    ("fields", "field"),
    [
        ({"messages": [USER, {"role": "root"}]}, "messages[1].role"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL] * 129}]}, "messages[0].tool_calls"),
        ({"tools": [TOOL, TOOL | {"name": ""}]}, "tools[1].name"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"template_arguments": {f"a{i}": {"flag": True} for i in range(17)}}, "template_arguments"),
        ({"template_arguments": {"a": {}}}, "template_arguments['a']"),
        ({"template_arguments": {"messages": {"text": "x"}}}, "template_arguments['messages']"),
        ({"template_arguments": {"eos_token": {"text": "x"}}}, "template_arguments['eos_token']"),
        ({"template_arguments": {"_a": {"flag": True}}}, "template_arguments['_a']"),
        ({"template_arguments": {"a" * 65: {"flag": True}}}, f"template_arguments['{'a' * 64}']"),
        ({"template_arguments": {"a": {"number": "NaN"}}}, "template_arguments['a']"),
        ({"template_arguments": {"a": {"text": "é" * 513}}}, "template_arguments['a']"),
    ],
)
def test_bad_input_names_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(PacelineError) as refused:
        chat(**fields)
    assert (refused.value.code, refused.value.field) == (Code.INVALID_ARGUMENT, f"prompt.chat.{field}")


BAD_OBJECTS = [
    "{",
    "[1]",
    "1",
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": "\\ud800"}',
    '{"a": ' + "9" * 5000 + "}",
    '{"a":' * 200_000,
    '{"a":' + "[" * 70 + "]" * 70 + "}",
]


@pytest.mark.parametrize("text", BAD_OBJECTS, ids=range(len(BAD_OBJECTS)))
def test_parameters_are_json_objects(text: str) -> None:
    with pytest.raises(PacelineError) as refused:
        chat(tools=[TOOL | {"parameters": text}])
    assert refused.value.field == "prompt.chat.tools[0].parameters"


@pytest.mark.parametrize("text", [text for text in BAD_OBJECTS if len(text) < 100_000])
def test_arguments_of_a_past_call_that_are_no_object_are_none(text: str) -> None:
    made = chat(messages=[{"role": "assistant", "tool_calls": [CALL | {"arguments": text}]}])
    assert made.messages[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}


@pytest.mark.parametrize(
    "messages",
    [
        [USER | {"name": "n"}],
        [USER | {"tool_calls": [CALL]}],
        [ASKED | {"tool_calls": [CALL, CALL | {"name": ""}]}],
        [ANSWER, ASKED],
        [ASKED, ANSWER | {"tool_call_id": "c2"}],
    ],
)
def test_history_is_taken_as_it_is(messages: list[dict[str, Any]]) -> None:
    assert [message["role"] for message in chat(messages=messages).messages] == [one["role"] for one in messages]


def test_a_tool_has_what_its_client_gave() -> None:
    assert chat(tools=[{"name": "f"}]).tools == ({"type": "function", "function": {"name": "f"}},)


def test_an_unknown_role_is_shown() -> None:
    with pytest.raises(PacelineError, match="'root' is not one of system, user, assistant, tool"):
        chat(messages=[USER, {"role": "root"}])


def test_all_parts_together_are_bounded_as_a_prompt() -> None:
    half = "x" * (LIMITS.prompt_bytes // 2)
    with pytest.raises(PacelineError) as refused:
        chat(messages=[USER | {"content": half}], tools=[TOOL | {"description": half}])
    assert refused.value.field == "prompt"
