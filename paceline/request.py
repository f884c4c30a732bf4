"""Messages of the contract, made of plain values."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import duration_pb2

from paceline.errors import InvalidValueError
from paceline.fields import GIVEN, SAMPLING, STOPPING, TEXTS, fitting
from paceline.options import Message, Options, Prompt, Tool, ToolCall
from paceline.v1 import inference_pb2, types_pb2

PROMPT = "text, a list of messages or a list of token ids"
TEXT = "text in Unicode"
MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def generate_request(prompt: Prompt, options: Options) -> inference_pb2.GenerateRequest:
    """The message of one call.

    Raises:
        TypeError, InvalidValueError: a value does not fit its field; the message begins with the field's name.
    """
    stopping = _given(options, STOPPING)
    request = inference_pb2.GenerateRequest(
        model=options.model,
        prompt=prompt_to_pb(prompt, options),
        sampling=types_pb2.Sampling(**_given(options, SAMPLING)),
        stopping=types_pb2.Stopping(**stopping),
        speculation=types_pb2.Speculation(off=not options.speculation, **_given(options, ("max_draft",))),
        priority=options.priority,
        idempotency_key=options.idempotency_key,
        migration=options.migration,
        **_given(options, GIVEN),
    )
    if (seconds := options.timeout_s) is not None:
        request.timeout.CopyFrom(fitting("timeout_s", seconds, "a time in seconds", lambda: _duration(seconds)))
    return request


def prompt_to_pb(prompt: Prompt, options: Options) -> inference_pb2.Prompt:
    """One prompt, in the form that its type tells.

    Raises:
        TypeError, InvalidValueError: it holds something else; the message tells where.
    """
    if isinstance(prompt, str):
        return fitting("prompt", prompt, TEXT, lambda: inference_pb2.Prompt(text=prompt))
    if isinstance(prompt, bytes | bytearray | Mapping | Message) or not isinstance(prompt, Iterable):
        raise TypeError(f"prompt: a {type(prompt).__name__} is not {PROMPT}")
    parts: Sequence[Any] = [*prompt]
    messages = sum(isinstance(one, Message | Mapping) for one in parts)
    if 0 < messages < len(parts):
        raise TypeError("prompt: it holds messages or token ids, not both")
    if messages:
        return inference_pb2.Prompt(chat=_chat(parts, options))
    wanted = "a list of token ids, or of messages"
    ids = fitting("prompt", parts, wanted, lambda: types_pb2.TokenIds(ids=parts))
    return inference_pb2.Prompt(tokens=ids)


def _given(options: Options, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in names}
    alone = {name: [value] for name, value in values.items() if name in TEXTS and isinstance(value, str)}
    return {name: value for name, value in (values | alone).items() if value is not None}


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


def _chat(messages: Sequence[Message | Mapping[str, Any]], options: Options) -> inference_pb2.Chat:
    return inference_pb2.Chat(
        messages=[_message(f"prompt[{index}]", one) for index, one in enumerate(messages)],
        tools=[_tool(f"tools[{index}]", one) for index, one in enumerate(options.tools)],
        template_arguments={name: _argument(name, value) for name, value in options.template.items()},
    )


def _message(where: str, one: Message | Mapping[str, Any]) -> inference_pb2.ChatMessage:
    message = one if isinstance(one, Message) else _read_message(where, one)
    calls = [_call(f"{where}.tool_calls[{index}]", call) for index, call in enumerate(message.tool_calls)]
    texts = {name: getattr(message, name) for name in MESSAGE if name != "tool_calls"}
    for name, text in texts.items():
        fitting(f"{where}.{name}", text, TEXT, lambda: inference_pb2.ChatMessage(**{name: text}))  # noqa: B023 - it is called at once
    return inference_pb2.ChatMessage(**texts, tool_calls=calls)


def _read_message(where: str, one: Mapping[str, Any]) -> Message:
    """A message in OpenAI's form; keys without a value are as if they were absent."""
    given = {key: value for key, value in one.items() if value not in (None, [], ())}
    if unknown := [key for key in given if key not in MESSAGE]:
        raise InvalidValueError(f"{where}.{unknown[0]}: no such key; a message has {', '.join(MESSAGE)}")
    if "role" not in given:
        raise InvalidValueError(f"{where}.role: missing")
    return Message(**{"content": "", **given, **_text(where, given.get("content", ""))})


def _text(where: str, content: Any) -> dict[str, Any]:
    """Content as text, of which parts in OpenAI's form are joined."""
    if not isinstance(content, list | tuple):
        return {"content": content}
    for index, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InvalidValueError(f'{where}.content[{index}]: not a part of text, {{"type": "text", "text": ...}}')
    return {"content": "".join(part["text"] for part in content)}


def _call(where: str, one: ToolCall | Mapping[str, Any]) -> inference_pb2.ToolCall:
    told = _read(where, one, ("id", "name", "arguments"))
    return fitting(where, one, "a call with id, name and arguments", lambda: inference_pb2.ToolCall(**told))


def _tool(where: str, one: Tool | Mapping[str, Any]) -> inference_pb2.Tool:
    told = _read(where, one, ("name", "description", "parameters"))
    return fitting(where, one, "a tool with name, description and parameters", lambda: inference_pb2.Tool(**told))


def _read(where: str, one: Any, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a call or a tool; OpenAI's have most of them under `function`."""
    if isinstance(one, ToolCall | Tool):
        return {name: getattr(one, name) for name in names}
    inner = one.get("function", {}) if isinstance(one, Mapping) else None
    if not isinstance(inner, Mapping):
        raise TypeError(f"{where}: {one!r} is not a mapping with a name")
    given = {key: value for key, value in {**one, **inner}.items() if value and key not in ("type", "function")}
    if unknown := [key for key in given if key not in names]:
        raise InvalidValueError(f"{where}.{unknown[0]}: no such key; there are {', '.join(names)}")
    if "name" not in given:
        raise InvalidValueError(f"{where}.name: missing")
    return {key: _json(value) for key, value in given.items()}


def _json(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping) else value


def _argument(name: str, value: bool | int | float | str) -> inference_pb2.TemplateArgument:
    kind = {bool: "flag", int: "integer", float: "number"}.get(type(value), "text")
    given: dict[str, Any] = {kind: value}
    wanted = "True, False, a number or text"
    return fitting(f"template[{name!r}]", value, wanted, lambda: inference_pb2.TemplateArgument(**given))
