"""Bodies of OpenAI's Responses API, and the chats that they are. Nothing is stored: each carries all that was said."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, JsonValue, PrivateAttr, Tag, model_validator

from services.common.request.errors import invalid_field
from services.common.request.limits import LIMITS
from services.gateway.http.endpoints.response_tools import AnyChoice, AnyTool, Tools, arguments_of, joined
from services.gateway.http.reading.body import parsed, validated
from services.gateway.http.schema.base import Body, Ignored, unless
from services.gateway.http.schema.bodies import ChatBody, Sampling, ToolBody
from services.gateway.http.schema.history import MOST_PARTS
from services.gateway.http.schema.hosted import known, type_of

HOSTED_ITEMS = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
)
"""Items of tools that a provider runs."""

KEPT = "nothing is kept here; send all items in input"


class Sent(Body):
    """What clients send back from an answer: they add fields of other kinds of items, all null, and of their own."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {name: one for name, one in value.items() if one is not None} if isinstance(value, dict) else value


class TextPart(Sent):
    """Text of a message."""

    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"]
    text: str = ""
    refusal: str = ""
    annotations: Ignored = None
    logprobs: Ignored = None
    parsed: Ignored = None


Parts = Annotated[list[TextPart], Field(fail_fast=True, max_length=MOST_PARTS)]


class MessageItem(Sent):
    """A message."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None


class CallItem(Sent):
    """A call that the assistant asked for."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str | dict[str, JsonValue] | list[JsonValue] = ""
    id: Ignored = None
    status: Ignored = None
    namespace: str | None = None
    parsed_arguments: Ignored = None
    caller: Ignored = None


class CustomItem(Sent):
    """A call of a tool that takes a text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str = ""
    id: Ignored = None
    status: Ignored = None
    namespace: str | None = None
    caller: Ignored = None


class ResultItem(Sent):
    """What a call gave."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: str | Parts = ""
    id: Ignored = None
    status: Ignored = None
    caller: Ignored = None


class ReasoningItem(Sent):
    """What the assistant thought."""

    type: Literal["reasoning"]
    summary: Parts | None = None
    content: Parts | None = None
    id: Ignored = None
    encrypted_content: Ignored = None
    status: Ignored = None


class HostedItem(Sent):
    """What a provider did between; it is left out, for the text behind it says what came of it."""

    type: Annotated[str, known(HOSTED_ITEMS.__contains__)]


Item = MessageItem | CallItem | CustomItem | ResultItem | ReasoningItem | HostedItem


def _kind(item: Any) -> Any:
    """An item without a type is a message."""
    kind = type_of(item, "message")
    return "hosted tool" if kind in HOSTED_ITEMS else kind


AnyItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[CustomItem, Tag("custom_tool_call")]
    | Annotated[ResultItem, Tag("function_call_output")]
    | Annotated[ResultItem, Tag("custom_tool_call_output")]
    | Annotated[HostedItem, Tag("hosted tool")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_kind),
]


class ReasoningIn(Body):
    """How long the model thinks."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Ignored = None
    generate_summary: Ignored = None
    context: Ignored = None


class FormatIn(Body):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextIn(Body):
    """Options of the answer's text."""

    format: FormatIn | None = None
    verbosity: Ignored = None


class StreamOptionsIn(Body):
    """Options of a stream."""

    include_obfuscation: Ignored = None


class ResponsesBody(Sampling):
    """The body of POST /v1/responses."""

    model: str = Field(min_length=1, description="Name of the model, as /v1/models tells it.")
    input: str | Annotated[list[AnyItem], Field(fail_fast=True, max_length=LIMITS.chat_messages)]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    tools: list[AnyTool] | None = Field(default=None, fail_fast=True, max_length=LIMITS.chat_tools)
    tool_choice: Literal["auto", "none", "required"] | AnyChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningIn | None = None
    text: TextIn | None = None
    background: Annotated[Literal[False] | None, unless("wait for the answer, or stream it")] = None
    previous_response_id: Annotated[None, unless(KEPT)] = None
    conversation: Annotated[None, unless(KEPT)] = None
    prompt: Annotated[None, unless("no prompts are kept here; send input and instructions")] = None
    top_logprobs: Annotated[Literal[0] | None, unless("chat completions tell log-probabilities")] = None
    stream_options: StreamOptionsIn | None = None
    truncation: Literal["disabled", "auto"] | None = Field(
        default=None, description="Nothing is left out: a chat that is too long is refused."
    )
    store: Ignored = None
    include: Ignored = None
    metadata: Ignored = None
    user: Ignored = None
    service_tier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
    safety_identifier: Ignored = None
    max_tool_calls: Ignored = None
    client_metadata: Ignored = None
    context_management: Ignored = None
    prompt_cache_options: Ignored = None
    moderation: Ignored = None
    access_programs: Ignored = None
    background_options: Ignored = None
    image: Ignored = None
    stop: JsonValue = None


class ResponseChat(ChatBody):
    """The chat of a response, with the body that asked for it."""

    _asked: ResponsesBody = PrivateAttr()
    _calls: Tools = PrivateAttr()

    @property
    def asked(self) -> ResponsesBody:
        """The body that the client sent."""
        return self._asked

    @property
    def calls(self) -> Tools:
        """What the client calls the functions of the chat."""
        return self._calls


def read_response(raw: bytearray) -> ResponseChat:
    """The chat that a body is.

    Raises:
        PacelineError: it is invalid.
    """
    body = parsed(ResponsesBody, raw)
    tools = Tools(body.tools or ())
    chat = validated(ResponseChat, _chat(body, tools))
    chat._asked, chat._calls = body, tools
    for tool, place in zip(chat.tools or (), tools.places, strict=True):
        if isinstance(tool, ToolBody):
            tool.stands(place)
    items = () if isinstance(body.input, str) else body.input
    chat._left = tuple(item.type for item in items if isinstance(item, HostedItem))
    return chat


def _chat(body: ResponsesBody, tools: Tools) -> dict[str, Any]:
    messages = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else _messages(body.input)
    if body.input and not messages:
        raise invalid_field("input", "holds nothing but what is left out")
    if body.instructions:
        messages.insert(0, {"role": "system", "content": body.instructions})
    chat: dict[str, Any] = {"model": body.model, "messages": messages, "max_tokens": body.max_output_tokens}
    for name in ("stream", "temperature", "top_p", "parallel_tool_calls"):
        chat[name] = getattr(body, name)
    chat["tools"] = tools.chat
    chat |= body.sampling() | {"stop": body.stop, "tool_choice": tools.choice(body.tool_choice)}
    chat["reasoning_effort"] = body.reasoning and body.reasoning.effort
    if body.text is not None and body.text.format is not None:
        chat["response_format"] = _format(body.text.format)
    return chat


def _messages(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Messages of a chat: thoughts, text and calls that follow on one another are one message of the assistant."""
    found: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, HostedItem):
            continue
        if isinstance(item, ResultItem):
            found.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
        elif isinstance(item, MessageItem) and item.role != "assistant":
            found.append({"role": item.role, "content": _text(item.content)})
        else:
            _add(_turn(found), item)
    for turn in found:
        for name in ("content", "reasoning_content"):
            if isinstance(turn.get(name), list):
                turn[name] = "".join(turn[name])
    return found


def _turn(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message at the end, its texts as pieces, begun where there is none."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    return messages[-1]


def _add(turn: dict[str, Any], item: Item) -> None:
    if isinstance(item, CallItem):
        function = {"name": joined(item.name, item.namespace), "arguments": item.arguments}
        turn.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})
    elif isinstance(item, CustomItem):
        function = {"name": joined(item.name, item.namespace), "arguments": arguments_of(item.input)}
        turn.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})
    elif isinstance(item, ReasoningItem):
        turn.setdefault("reasoning_content", []).append(_text(item.content or item.summary or []))
    elif isinstance(item, MessageItem):
        turn["content"].append(_text(item.content))


def _text(content: str | Parts) -> str:
    return content if isinstance(content, str) else "\n".join(part.text or part.refusal for part in content)


def _format(form: FormatIn) -> dict[str, Any]:
    if form.type != "json_schema":
        return {"type": form.type}
    schema = {"name": form.name, "description": form.description, "schema": form.schema_, "strict": form.strict}
    return {"type": form.type, "json_schema": {name: value for name, value in schema.items() if value is not None}}
