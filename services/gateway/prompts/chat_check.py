"""Checks a client's chat and makes the plain values of it that chat templates read; knows no wire.

Sizes are checked before contents are read.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from services.common.request.errors import PacelineError, invalid_field
from services.common.request.limits import LIMITS
from services.common.request.validation import check_count
from services.gateway.intake.query import Argument, ChatPrompt
from services.gateway.intake.shape import Shape
from services.gateway.prompts.chat_template import GIVEN, SPECIAL_TOKENS

FIELD = "prompt.chat"
ROLES = ("system", "user", "assistant", "tool")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
DEEPEST = 64
"""Levels of a JSON value."""


class Call(Protocol):
    """A call that the assistant asked for; arguments are a JSON object as text."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def arguments(self) -> str: ...  # noqa: D102


class Message(Protocol):
    """One message of a chat; what it does not have is empty."""

    @property
    def role(self) -> str: ...  # noqa: D102
    @property
    def content(self) -> str: ...  # noqa: D102
    @property
    def tool_calls(self) -> Sequence[Call]: ...  # noqa: D102
    @property
    def tool_call_id(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def reasoning_content(self) -> str: ...  # noqa: D102


class Tool(Protocol):
    """A function that the model may ask for; parameters are a JSON object as text."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def parameters(self) -> str: ...  # noqa: D102


def check_counts(messages: int, tools: int, arguments: int) -> None:
    """Refuses a chat without messages or with too many entries.

    Raises:
        PacelineError: INVALID_FIELD; the field is named.
    """
    check_count(f"{FIELD}.messages", messages, LIMITS.chat_messages)
    check_count(f"{FIELD}.tools", tools, LIMITS.chat_tools)
    check_count(f"{FIELD}.template_arguments", arguments, LIMITS.template_arguments)
    if not messages:
        raise invalid_field(f"{FIELD}.messages", "the chat is empty")


def checked_chat(
    messages: Sequence[Message], tools: Sequence[Tool], arguments: Mapping[str, Argument | None]
) -> ChatPrompt:
    """One chat, its size known; an argument is None where the client gave no value.

    Raises:
        PacelineError: INVALID_FIELD; the field is named, with the index of its message or tool.
    """
    check_counts(len(messages), len(tools), len(arguments))
    size = _sizes(messages, tools)
    checked = {name: _argument(name, arguments[name]) for name in sorted(arguments)}
    shape = Shape()
    plain = tuple(_tool(index, tool, shape) for index, tool in enumerate(tools))
    return ChatPrompt(_messages(messages, shape), size, plain, checked)


def check_size(text: str) -> int:
    """Bytes of a text; its characters are enough to refuse it.

    Raises:
        PacelineError: INVALID_FIELD, it is too large to look at.
    """
    size = len(text) if len(text) > LIMITS.prompt_bytes else len(text.encode())
    if size > LIMITS.prompt_bytes:
        raise invalid_field("prompt", f"more than {LIMITS.prompt_bytes} bytes")
    return size


def _sizes(messages: Sequence[Message], tools: Sequence[Tool]) -> int:
    """Bytes of all that a template may print; together they are a prompt."""
    for index, message in enumerate(messages):
        check_count(f"{FIELD}.messages[{index}].tool_calls", len(message.tool_calls), LIMITS.chat_tool_calls)
    size = sum(
        check_size(message.role)
        + check_size(message.content)
        + check_size(message.tool_call_id)
        + check_size(message.name)
        + check_size(message.reasoning_content)
        for message in messages
    )
    calls = (call for message in messages for call in message.tool_calls)
    size += sum(check_size(call.id) + check_size(call.name) + check_size(call.arguments) for call in calls)
    size += sum(check_size(tool.name) + check_size(tool.description) + check_size(tool.parameters) for tool in tools)
    if size > LIMITS.prompt_bytes:
        raise invalid_field("prompt", f"more than {LIMITS.prompt_bytes} bytes")
    return size


def _messages(messages: Iterable[Message], shape: Shape) -> tuple[dict[str, Any], ...]:
    return tuple(_message(f"{FIELD}.messages[{index}]", message, shape) for index, message in enumerate(messages))


def _message(field: str, message: Message, shape: Shape) -> dict[str, Any]:
    """One message, whatever a model or a client wrote into it; `shape` is what JSON texts held so far."""
    if message.role not in ROLES:
        raise invalid_field(f"{field}.role", f"{message.role[:64]!r} is not one of {', '.join(ROLES)}")
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        calls = enumerate(message.tool_calls)
        plain["tool_calls"] = [_call(f"{field}.tool_calls[{number}]", call, shape) for number, call in calls]
    for name in ("tool_call_id", "name", "reasoning_content"):
        if value := getattr(message, name):
            plain[name] = value
    return plain


def _call(field: str, call: Call, shape: Shape) -> dict[str, Any]:
    """A call of the history. Arguments that are no object are none: templates go through their names."""
    shape.take(call.arguments.encode(errors="replace"), f"{field}.arguments")
    try:
        arguments = _parsed(call.arguments)
    except (ValueError, RecursionError):
        arguments = {}
    function = {"name": call.name, "arguments": arguments}
    return {"type": "function"} | ({"id": call.id} if call.id else {}) | {"function": function}


def _tool(index: int, tool: Tool, shape: Shape) -> dict[str, Any]:
    """A tool; what it does not have is not printed."""
    field = f"{FIELD}.tools[{index}]"
    if not tool.name:
        raise invalid_field(f"{field}.name", "the function has no name")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = _object(f"{field}.parameters", tool.parameters, shape)
    return {"type": "function", "function": function}


def _argument(name: str, value: Argument | None) -> Argument:
    field = f"{FIELD}.template_arguments[{name[:64]!r}]"
    if not NAME.fullmatch(name):
        raise invalid_field(field, "a name is a letter and up to 63 letters, digits and underscores")
    if name in GIVEN or name in SPECIAL_TOKENS:
        raise invalid_field(field, "the gateway itself gives the template this value")
    if value is None:
        raise invalid_field(field, "one of flag, integer, number and text is needed")
    if isinstance(value, float) and not math.isfinite(value):
        raise invalid_field(field, f"{value} is not finite")
    size = len(value.encode() if isinstance(value, str) else json.dumps(value))
    if size > LIMITS.template_argument_bytes:
        raise invalid_field(field, f"more than {LIMITS.template_argument_bytes} bytes")
    return value


def _object(field: str, text: str, shape: Shape) -> dict[str, Any]:
    """A JSON object that can be printed again."""
    shape.take(text.encode(), field)
    try:
        return _parsed(text)
    except (ValueError, RecursionError) as error:
        raise _no_object(field) from error


def _parsed(text: str) -> dict[str, Any]:
    """The object of a JSON text.

    Raises:
        ValueError, RecursionError: it is none, or none that can be printed again.
    """
    value = json.loads(text or "{}")
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    if not isinstance(value, dict) or _depth(value) > DEEPEST:
        raise ValueError
    return value


def _no_object(field: str) -> PacelineError:
    return invalid_field(field, f"is not a JSON object of at most {DEEPEST} levels")


def _depth(value: object) -> int:
    """Levels of nesting; a loop, for values may be nested deeper than calls."""
    level, layer = 0, [value]
    while layer:
        level += 1
        below = (one.values() if isinstance(one, dict) else one for one in layer if isinstance(one, dict | list))
        layer = [inner for several in below for inner in several]
    return level
