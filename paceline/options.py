"""A program's request as plain values, and its message; a value of None is left to the gateway."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import duration_pb2

from paceline.v1 import inference_pb2, types_pb2

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
)
STOPPING = ("max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos")


@dataclass(frozen=True)
class ToolCall:
    """A call that the assistant asked for; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str = ""


@dataclass(frozen=True)
class Message:
    """One message of a chat; `tool_calls` only of the assistant, `tool_call_id` and `name` only of a tool."""

    role: str
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    name: str = ""


@dataclass(frozen=True)
class Tool:
    """A function that the model may ask for; `parameters` is a JSON Schema as text."""

    name: str
    description: str = ""
    parameters: str = ""


Prompt = str | Sequence[Message] | Sequence[int]
"""Text, the messages of a chat, or token ids."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How text is made; the contract in inference.proto names the ranges and defaults.

    `template` and `tools` are read by the chat template, so only of chats. `timeout_s` gives the text so far in good
    order when it passes.
    """

    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool | None = None
    speculation: bool = True
    max_draft: int | None = None
    logprobs: int | None = None
    priority: int = 0
    timeout_s: float | None = None
    idempotency_key: str = ""
    migration: bool = True
    tools: Sequence[Tool] = ()
    template: Mapping[str, bool | int | float | str] = field(default_factory=dict)


def generate_request(prompt: Prompt, options: Options) -> inference_pb2.GenerateRequest:
    """The message of one call.

    Raises:
        TypeError, ValueError: a value does not fit its field.
    """
    request = inference_pb2.GenerateRequest(
        model=options.model,
        prompt=prompt_to_pb(prompt, options),
        sampling=types_pb2.Sampling(**_given(options, SAMPLING)),
        stopping=types_pb2.Stopping(**_given(options, STOPPING)),
        speculation=types_pb2.Speculation(off=not options.speculation, **_given(options, ("max_draft",))),
        priority=options.priority,
        idempotency_key=options.idempotency_key,
        migration=options.migration,
        **_given(options, ("logprobs",)),
    )
    if options.timeout_s is not None:
        timeout = duration_pb2.Duration()
        timeout.FromNanoseconds(int(options.timeout_s * 1e9))
        request.timeout.CopyFrom(timeout)
    return request


def prompt_to_pb(prompt: Prompt, options: Options) -> inference_pb2.Prompt:
    """One prompt, in the form that its type tells.

    Raises:
        TypeError, ValueError: it holds something else.
    """
    if isinstance(prompt, str):
        return inference_pb2.Prompt(text=prompt)
    messages = [one for one in prompt if isinstance(one, Message)]
    ids = [one for one in prompt if not isinstance(one, Message)]
    if messages and ids:
        raise TypeError("a prompt holds messages or token ids, not both")
    if messages:
        return inference_pb2.Prompt(chat=_chat(messages, options))
    return inference_pb2.Prompt(tokens=types_pb2.TokenIds(ids=ids))


def _given(options: Options, names: Sequence[str]) -> dict[str, Any]:
    values = ((name, getattr(options, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _chat(messages: Sequence[Message], options: Options) -> inference_pb2.Chat:
    return inference_pb2.Chat(
        messages=[_message(one) for one in messages],
        tools=[
            inference_pb2.Tool(name=one.name, description=one.description, parameters=one.parameters)
            for one in options.tools
        ],
        template_arguments={name: _argument(value) for name, value in options.template.items()},
    )


def _message(one: Message) -> inference_pb2.ChatMessage:
    return inference_pb2.ChatMessage(
        role=one.role,
        content=one.content,
        tool_calls=[
            inference_pb2.ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in one.tool_calls
        ],
        tool_call_id=one.tool_call_id,
        name=one.name,
    )


def _argument(value: bool | int | float | str) -> inference_pb2.TemplateArgument:
    if isinstance(value, bool):
        return inference_pb2.TemplateArgument(flag=value)
    if isinstance(value, int):
        return inference_pb2.TemplateArgument(integer=value)
    if isinstance(value, float):
        return inference_pb2.TemplateArgument(number=value)
    return inference_pb2.TemplateArgument(text=value)
