"""Requests as values become the contract's messages."""

import pytest

from paceline import Message, Options, Tool, ToolCall
from paceline.options import SAMPLING, STOPPING, generate_request, prompt_to_pb
from paceline.v1 import inference_pb2, types_pb2


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
