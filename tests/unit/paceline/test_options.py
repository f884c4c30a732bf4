"""Requests as values become the contract's messages."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from paceline import InvalidValueError, Message, Options, Tool, ToolCall
from paceline.fields import FIELDS, LISTS, SAMPLING, STOPPING, WANTED
from paceline.options import Keywords, chosen
from paceline.request import MESSAGE, generate_request, prompt_to_pb
from paceline.v1 import inference_pb2, types_pb2
from tests.support.cases import each


def test_what_is_not_said_is_absent() -> None:
    request = generate_request("x", Options())
    assert not request.sampling.ListFields() and not request.stopping.ListFields()
    assert request.migration and not request.speculation.off
    assert not request.HasField("logprobs") and not request.HasField("timeout")


def test_every_field_of_the_contract_has_its_option() -> None:
    assert {field.name for field in types_pb2.Sampling.DESCRIPTOR.fields} == set(SAMPLING)
    assert {field.name for field in types_pb2.Stopping.DESCRIPTOR.fields} == set(STOPPING)


def test_what_is_said_arrives() -> None:
    options = Options(
        model="m",
        max_tokens=7,
        temperature=0.5,
        seed=2**64 - 1,
        logit_bias={3: -1.0},
        stop=["a", "b"],
        stop_token_ids=[9],
        ignore_eos=True,
        speculation=False,
        max_draft=3,
        logprobs=0,
        priority=-2,
        timeout_s=1.5,
        idempotency_key="k",
        migration=False,
    )
    request = generate_request([1, 2], options)
    assert request.sampling == types_pb2.Sampling(temperature=0.5, seed=2**64 - 1, logit_bias={3: -1.0})
    assert request.stopping == types_pb2.Stopping(max_tokens=7, stop=["a", "b"], stop_token_ids=[9], ignore_eos=True)
    assert request.speculation == types_pb2.Speculation(off=True, max_draft=3)
    assert (request.model, request.priority, request.idempotency_key, request.migration) == ("m", -2, "k", False)
    assert request.HasField("logprobs") and request.timeout.ToMilliseconds() == 1500
    assert request.prompt.tokens.ids == [1, 2]


def test_a_chat_has_its_tools_calls_and_template_arguments() -> None:
    call = ToolCall("1", "weather", "{}")
    messages = [Message("user", "hi"), Message("assistant", "", [call]), Message("tool", "sun", (), "1", "weather")]
    options = Options(
        tools=[Tool("weather", "of a town")], template={"enable_thinking": False, "n": 3, "x": 0.5, "s": "t"}
    )
    chat = prompt_to_pb(messages, options).chat
    assert [message.role for message in chat.messages] == ["user", "assistant", "tool"]
    assert chat.messages[1].tool_calls[0] == inference_pb2.ToolCall(id="1", name="weather", arguments="{}")
    assert (chat.messages[2].tool_call_id, chat.messages[2].name) == ("1", "weather")
    assert chat.tools[0].name == "weather"
    forms = {name: argument.WhichOneof("value") for name, argument in chat.template_arguments.items()}
    assert forms == {"enable_thinking": "flag", "n": "integer", "x": "number", "s": "text"}


def test_a_prompt_of_several_kinds_is_refused() -> None:
    with pytest.raises(TypeError, match="messages or token ids"):
        prompt_to_pb([Message("user", "x"), 3], Options())  # type: ignore[arg-type]


def test_keywords_are_the_fields_of_options() -> None:
    assert get_type_hints(Keywords) == get_type_hints(Options)
    assert chosen(Options(seed=1, max_tokens=2), max_tokens=3) == Options(seed=1, max_tokens=3)
    assert chosen(None) == Options()
    assert {field.name for field in inference_pb2.ChatMessage.DESCRIPTOR.fields} == set(MESSAGE)
    assert {field.name for field in fields(Message)} == set(MESSAGE)


def test_every_option_that_is_one_field_is_checked_against_it() -> None:
    beside = {"timeout_s", "tools", "template"}
    assert set(FIELDS) == {field.name for field in fields(Options)} - beside
    for name, (message, field) in FIELDS.items():
        descriptor = message.DESCRIPTOR.fields_by_name[field]
        assert descriptor.type in WANTED
        assert (name in LISTS) == isinstance(getattr(Options(), name), tuple)


@each("name", [*FIELDS])
@each("value", [object(), "x\ud800", -(2**70), [object()], {object(): 1}])
def test_a_value_that_does_not_fit_is_told_with_its_name(name: str, value: Any) -> None:
    fits = {"temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"}
    if value == -(2**70) and name in fits:
        return  # Whether a number is in range is the gateway's to say.
    with pytest.raises((TypeError, InvalidValueError), match=f"^{name}: "):
        Options(**{name: value})


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300, "3"])
def test_a_time_that_is_none_is_told_with_its_name(seconds: Any) -> None:
    with pytest.raises((TypeError, InvalidValueError), match=r"^timeout_s: "):
        generate_request("x", Options(timeout_s=seconds))


def test_one_stop_string_needs_no_list() -> None:
    assert generate_request("x", Options(stop="END")).stopping.stop == ["END"]
    assert generate_request("x", Options(bad_words="END")).bad_words == ["END"]
    assert generate_request("x", Options(bad_words=["A", "B"], thinking_budget=0)).HasField("thinking_budget")


def test_an_unknown_option_names_the_nearest() -> None:
    wrong: dict[str, Any] = {"max_token": 3}
    with pytest.raises(TypeError, match=r"^no such option: max_token; is it max_tokens\?$"):
        chosen(None, **wrong)
    with pytest.raises(TypeError, match=r"^options: "):
        chosen({"max_tokens": 3})  # type: ignore[arg-type]


FUNCTION = {"name": "weather", "description": "of a town", "parameters": {"type": "object"}}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def test_messages_and_tools_in_openai_s_form_are_those_of_values() -> None:
    dicts: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "reasoning_content": "hm"},
        {"role": "tool", "content": "sun", "tool_call_id": "1", "name": "weather"},
    ]
    values = [
        Message("user", "hi"),
        Message("assistant", "", [ToolCall("1", "weather", "{}")], reasoning_content="hm"),
        Message("tool", "sun", tool_call_id="1", name="weather"),
    ]
    same = Options(tools=[Tool("weather", "of a town", '{"type": "object"}')])
    for form in ({"type": "function", "function": FUNCTION}, FUNCTION):
        assert prompt_to_pb(dicts, Options(tools=[form])) == prompt_to_pb(values, same)


@each(
    ("prompt", "options", "said"),
    [
        (b"abc", {}, "prompt: a bytes is not text"),
        (None, {}, "prompt: a NoneType is not text"),
        ({"role": "user", "content": "x"}, {}, "prompt: a dict is not text"),
        (Message("user", "x"), {}, "prompt: a Message is not text"),
        ("\ud800", {}, "prompt: '.*' is not text in Unicode"),
        ([1, -2], {}, r"prompt: \[1, -2\] is not a list of token ids"),
        (["x"], {}, r"prompt: \['x'\] is not a list of token ids"),
        ([{"content": "x"}], {}, r"prompt\[0\].role: missing"),
        ([Message("user", "x"), {"role": "user", "text": "x"}], {}, r"prompt\[1\].text: no such key"),
        ([{"role": "user", "content": 3}], {}, r"prompt\[0\].content: 3 is not text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], {}, r"prompt\[0\].content\[0\]: not a part of text"),
        ([{"role": "assistant", "tool_calls": [3]}], {}, r"prompt\[0\].tool_calls\[0\]: 3 is not a mapping"),
        ([Message("user", "x")], {"tools": [{"name": "f", "strict": True}]}, r"tools\[0\].strict: no such key"),
        ([Message("user", "x")], {"tools": [{"type": "function"}]}, r"tools\[0\].name: missing"),
        ([Message("user", "x")], {"template": {"a": [1]}}, r"template\['a'\]: \[1\] is not"),
    ],
)
def test_a_prompt_that_is_none_is_told_with_its_place(prompt: Any, options: Any, said: str) -> None:
    with pytest.raises((TypeError, InvalidValueError), match=f"^{said}"):
        generate_request(prompt, Options(**options))
