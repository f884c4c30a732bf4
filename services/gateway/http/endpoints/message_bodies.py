"""Bodies of Anthropic's Messages API, and the chats that they are."""

import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue

from services.common.request.errors import invalid_field
from services.common.request.limits import LIMITS
from services.gateway.http.reading.body import validated
from services.gateway.http.schema.base import Body, Ignored
from services.gateway.http.schema.bodies import ChatBody, Sampling, ThinkingBody
from services.gateway.http.schema.history import MOST_PARTS


class Sent(Body):
    """History: fields that are not known change no text."""

    model_config = ConfigDict(extra="ignore")


class TextPart(Sent):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: Ignored = None
    citations: Ignored = None


class ToolUsePart(Sent):
    """A call that the assistant asked for."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, JsonValue]
    cache_control: Ignored = None
    caller: Ignored = None
    toolset_name: Ignored = None


class ToolResultPart(Sent):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MOST_PARTS)] | None = None
    is_error: Ignored = None
    cache_control: Ignored = None


class ThinkingPart(Sent):
    """What the assistant thought."""

    type: Literal["thinking"]
    thinking: str
    signature: Ignored = None


class RedactedPart(Sent):
    """A thought that cannot be read; it is left out."""

    type: Literal["redacted_thinking"]
    data: Ignored = None


Part = Annotated[TextPart | ToolUsePart | ToolResultPart | ThinkingPart | RedactedPart, Field(discriminator="type")]
Texts = str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MOST_PARTS)]


class MessageIn(Sent):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Part], Field(fail_fast=True, max_length=MOST_PARTS)]


class ToolIn(Sent):
    """A tool; of one that Anthropic's servers run, its type is what is told to be refused."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: Ignored = None
    eager_input_streaming: Ignored = None
    input_examples: Ignored = None
    defer_loading: Ignored = None
    allowed_callers: Ignored = None


class ChoiceIn(Body):
    """Which tools may be called."""

    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class FormatIn(Body):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the answer.")


class OutputConfig(Body):
    """What the answer must be like, and how long the model thinks."""

    format: FormatIn | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None, description="As reasoning_effort of a chat."
    )
    task_budget: Ignored = None


class CountBody(Sampling):
    """The body of POST /v1/messages/count_tokens."""

    model: str = Field(min_length=1, description="Name of the model, as /v1/models tells it.")
    messages: list[MessageIn] = Field(fail_fast=True, max_length=LIMITS.chat_messages)
    system: Texts | None = None
    tools: list[ToolIn] | None = Field(default=None, fail_fast=True, max_length=LIMITS.chat_tools)
    tool_choice: ChoiceIn | None = None
    thinking: ThinkingBody | None = None
    cache_control: Ignored = None
    context_management: Ignored = None
    output_config: OutputConfig | None = None


class MessagesBody(CountBody):
    """The body of POST /v1/messages."""

    max_tokens: int = Field(ge=1, lt=2**31)
    stream: bool | None = None
    stop_sequences: list[str] | None = Field(default=None, fail_fast=True, max_length=LIMITS.stop_strings)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    metadata: Ignored = None
    service_tier: Ignored = None
    container: Ignored = None
    inference_geo: Ignored = None


def chat_of(body: CountBody) -> ChatBody:
    """The chat.

    Raises:
        PacelineError: it is none that can be served.
    """
    messages = [one for index, message in enumerate(body.messages) for one in _messages(index, message)]
    if body.system:
        messages.insert(0, {"role": "system", "content": _texts(body.system)})
    chat: dict[str, Any] = {"model": body.model, "messages": messages}
    for name in ("max_tokens", "stream", "temperature", "top_p"):
        chat[name] = getattr(body, name, None)
    chat |= body.sampling()
    chat["stop"] = getattr(body, "stop_sequences", None)
    chat["tools"] = [_tool(tool) for tool in body.tools or ()]
    if body.tool_choice is not None:
        chat["tool_choice"] = _choice(body.tool_choice)
        chat["parallel_tool_calls"] = not body.tool_choice.disable_parallel_tool_use
    if body.thinking is not None:
        chat["thinking"] = body.thinking.model_dump(exclude_none=True)
    _configure(chat, body.output_config or OutputConfig())
    last = messages[-1] if messages else {}
    chat["continue_final_message"] = last.get("role") == "assistant" and not last.get("tool_calls")
    return validated(ChatBody, chat)


def _configure(chat: dict[str, Any], config: OutputConfig) -> None:
    chat["reasoning_effort"] = config.effort
    if config.format is not None:
        chat["response_format"] = {"type": "json_schema", "json_schema": {"schema": config.format.schema_}}


def _texts(texts: Texts) -> str | list[dict[str, str]]:
    return texts if isinstance(texts, str) else [{"type": "text", "text": one.text} for one in texts]


def _messages(index: int, message: MessageIn) -> list[dict[str, Any]]:
    """Messages of a chat: results of calls come first, each as one of its own."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    found: list[dict[str, Any]] = []
    own: dict[str, Any] = {"role": message.role, "content": []}
    for place, part in enumerate(message.content):
        if isinstance(part, TextPart):
            own["content"].append({"type": "text", "text": part.text})
        elif isinstance(part, ToolResultPart):
            result = {"role": "tool", "tool_call_id": part.tool_use_id, "content": _texts(part.content or "")}
            found.append(result)
        elif isinstance(part, ToolUsePart):
            own.setdefault("tool_calls", []).append(_call(part))
        elif isinstance(part, ThinkingPart):
            own.setdefault("reasoning_content", []).append(part.thinking)
        if message.role != "assistant" and isinstance(part, ToolUsePart | ThinkingPart):
            raise invalid_field(f"messages[{index}].content[{place}].type", "is the assistant's")
    if "reasoning_content" in own:
        own["reasoning_content"] = "".join(own["reasoning_content"])
    if own["content"] or len(own) > 2 or not found:
        found.append(own)
    return found


def _call(part: ToolUsePart) -> dict[str, Any]:
    function = {"name": part.name, "arguments": json.dumps(part.input, ensure_ascii=False)}
    return {"id": part.id, "type": "function", "function": function}


def _tool(tool: ToolIn) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: ChoiceIn) -> Any:
    if choice.type == "tool":
        if not choice.name:
            raise invalid_field("tool_choice.name", "is needed with type tool")
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type
