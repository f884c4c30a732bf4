"""Bodies of Anthropic's Messages API, and the chats that they are."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag

from services.common.request.errors import invalid_field, unsupported
from services.common.request.limits import LIMITS
from services.gateway.http.endpoints.message_hints import CountHints, MessageHints
from services.gateway.http.reading.body import validated
from services.gateway.http.schema.base import Body, Ignored
from services.gateway.http.schema.bodies import ChatBody, Sampling, ThinkingBody, ToolBody
from services.gateway.http.schema.history import MOST_PARTS
from services.gateway.http.schema.hosted import HostedTool, is_hosted, known, not_run, type_of

HOSTED_PARTS = (
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
)
"""Blocks of tools that a provider runs."""


class Sent(Body):
    """History: fields that are not known change no text."""

    model_config = ConfigDict(extra="ignore")


class TextPart(Sent):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: Ignored = None
    citations: Ignored = None


class TextSource(Sent):
    """A document that is text."""

    type: Literal["text"]
    data: str


class BlockSource(Sent):
    """A document in blocks."""

    type: Literal["content"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MOST_PARTS)]


class DocumentPart(Sent):
    """A document; the model reads its title, what is said of it, and its text."""

    type: Literal["document"]
    source: Annotated[TextSource | BlockSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    cache_control: Ignored = None
    citations: Ignored = None

    @property
    def text(self) -> str:
        """All of it."""
        found = self.source.data if isinstance(self.source, TextSource) else _one_text(self.source.content)
        return "\n".join(one for one in (self.title, self.context, found) if one)


class SearchPart(Sent):
    """What a client's own search has found."""

    type: Literal["search_result"]
    source: str
    title: str
    content: Annotated[list[TextPart], Field(fail_fast=True, max_length=MOST_PARTS)]
    cache_control: Ignored = None
    citations: Ignored = None

    @property
    def text(self) -> str:
        """Where it stands, and what it says."""
        return "\n".join((self.title, self.source, _one_text(self.content)))


class ToolNamePart(Sent):
    """A tool that a client's search of tools has found: all tools are told to the model anyway."""

    type: Literal["tool_reference"]
    tool_name: str
    cache_control: Ignored = None

    @property
    def text(self) -> str:
        """Its name."""
        return self.tool_name


class CompactionPart(Sent):
    """What stands for the turns before it."""

    type: Literal["compaction"]
    content: str
    cache_control: Ignored = None

    @property
    def text(self) -> str:
        """What it says."""
        return self.content


class HostedPart(Sent):
    """What a provider did between; it is left out, for the text behind it says what came of it."""

    type: Annotated[str, known(HOSTED_PARTS.__contains__)]


class ToolUsePart(Sent):
    """A call that the assistant asked for."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: JsonValue = None
    cache_control: Ignored = None
    caller: Ignored = None
    toolset_name: Ignored = None


class ToolResultPart(Sent):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: (
        str
        | Annotated[
            list[Annotated[TextPart | DocumentPart | SearchPart | ToolNamePart, Field(discriminator="type")]],
            Field(fail_fast=True, max_length=MOST_PARTS),
        ]
        | None
    ) = None
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


def _tag_of_part(value: Any) -> Any:
    kind = type_of(value, "")
    return "hosted tool" if kind in HOSTED_PARTS else kind


TEXTS = (TextPart, DocumentPart, SearchPart, CompactionPart)
Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[DocumentPart, Tag("document")]
    | Annotated[SearchPart, Tag("search_result")]
    | Annotated[CompactionPart, Tag("compaction")]
    | Annotated[ToolUsePart, Tag("tool_use")]
    | Annotated[ToolResultPart, Tag("tool_result")]
    | Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[RedactedPart, Tag("redacted_thinking")]
    | Annotated[HostedPart, Tag("hosted tool")],
    Discriminator(_tag_of_part),
]
Texts = str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MOST_PARTS)]


class MessageIn(Sent):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Part], Field(fail_fast=True, max_length=MOST_PARTS)]


class ToolIn(Sent):
    """A tool; of one whose form Anthropic's models know alone, its type is what is told to be refused."""

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


def _tag_of_tool(value: Any) -> str:
    return "hosted tool" if is_hosted(type_of(value, "custom")) else "function tool"


AnyTool = Annotated[
    Annotated[HostedTool, Tag("hosted tool")] | Annotated[ToolIn, Tag("function tool")], Discriminator(_tag_of_tool)
]


class ServerIn(Sent):
    """A server of tools that a provider calls, whatever it says."""

    name: Ignored = None


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


class CountBody(Sampling, CountHints):
    """The body of POST /v1/messages/count_tokens."""

    model: str = Field(min_length=1, description="Name of the model, as /v1/models tells it.")
    messages: list[MessageIn] = Field(fail_fast=True, max_length=LIMITS.chat_messages)
    system: Texts | None = None
    tools: list[AnyTool] | None = Field(default=None, fail_fast=True, max_length=LIMITS.chat_tools)
    tool_choice: ChoiceIn | None = None
    mcp_servers: list[ServerIn] | None = Field(default=None, fail_fast=True, max_length=LIMITS.chat_tools)
    thinking: ThinkingBody | None = None
    output_config: OutputConfig | None = None


class MessagesBody(MessageHints, CountBody):
    """The body of POST /v1/messages."""

    max_tokens: int = Field(ge=1, lt=2**31)
    stream: bool | None = None
    stop_sequences: list[str] | None = Field(default=None, fail_fast=True, max_length=LIMITS.stop_strings)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)


def chat_of(body: CountBody) -> ChatBody:
    """The chat.

    Raises:
        PacelineError: it is none that can be served.
    """
    messages = _history(body)
    chat: dict[str, Any] = {"model": body.model, "messages": messages}
    for name in ("max_tokens", "stream", "temperature", "top_p"):
        chat[name] = getattr(body, name, None)
    chat |= body.sampling()
    chat["stop"] = getattr(body, "stop_sequences", None)
    chat["tools"] = [_tool(tool) for tool in body.tools or ()]
    if body.tool_choice is not None:
        chat["tool_choice"] = _choice(body.tool_choice, body.tools or ())
        chat["parallel_tool_calls"] = not body.tool_choice.disable_parallel_tool_use
    if body.thinking is not None:
        chat["thinking"] = body.thinking.model_dump(exclude_none=True)
    _configure(chat, body.output_config or OutputConfig())
    last = messages[-1] if messages else {}
    chat["continue_final_message"] = last.get("role") == "assistant" and not last.get("tool_calls")
    found = validated(ChatBody, chat)
    found._left = tuple(_left_out(body))
    for index, tool in enumerate(found.tools or ()):
        if isinstance(tool, ToolBody):
            tool.stands(f"tools[{index}]")
    return found


def _left_out(body: CountBody) -> Iterator[str]:
    """What is left out beside tools.

    Raises:
        PacelineError: UNSUPPORTED, nothing else may be called.
    """
    for message in body.messages:
        parts = () if isinstance(message.content, str) else message.content
        yield from (part.type for part in parts if isinstance(part, HostedPart))
    if body.mcp_servers:
        if not body.tools and (body.tool_choice is None or body.tool_choice.type != "none"):
            raise unsupported("mcp_servers", "are called by a provider, and nothing here does; send functions in tools")
        yield "mcp_servers"


def _configure(chat: dict[str, Any], config: OutputConfig) -> None:
    chat["reasoning_effort"] = config.effort
    if config.format is not None:
        chat["response_format"] = {"type": "json_schema", "json_schema": {"schema": config.format.schema_}}


def _texts(texts: str | Sequence[TextPart | DocumentPart | SearchPart | ToolNamePart]) -> str | list[dict[str, str]]:
    return texts if isinstance(texts, str) else [{"type": "text", "text": one.text} for one in texts]


def _one_text(content: str | Sequence[TextPart]) -> str:
    return content if isinstance(content, str) else "\n".join(one.text for one in content)


def _history(body: CountBody) -> list[dict[str, Any]]:
    """All messages of the chat."""
    messages = [one for index, message in enumerate(body.messages) for one in _messages(index, message)]
    if body.messages and not messages:
        raise invalid_field("messages", "hold nothing but what is left out")
    system = [{"role": "system", "content": _texts(body.system)}] if body.system else []
    return system + messages


def _messages(index: int, message: MessageIn) -> list[dict[str, Any]]:
    """Messages of a chat: results of calls come first, each as one of its own; a turn of what is left out is none."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    found: list[dict[str, Any]] = []
    own: dict[str, Any] = {"role": message.role, "content": []}
    for place, part in enumerate(message.content):
        if isinstance(part, TEXTS):
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
    if own["content"] or len(own) > 2 or not message.content:
        found.append(own)
    return found


def _call(part: ToolUsePart) -> dict[str, Any]:
    """Histories hold what a model wrote, also where it is no object."""
    given = {} if part.input is None else part.input
    function = {
        "name": part.name,
        "arguments": given if isinstance(given, str) else json.dumps(given, ensure_ascii=False),
    }
    return {"id": part.id, "type": "function", "function": function}


def _tool(tool: ToolIn | HostedTool) -> dict[str, Any]:
    if isinstance(tool, HostedTool):
        return {"type": tool.type}
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: ChoiceIn, tools: Iterable[ToolIn | HostedTool]) -> Any:
    if choice.type == "tool":
        if not choice.name:
            raise invalid_field("tool_choice.name", "is needed with type tool")
        if any(isinstance(tool, HostedTool) and tool.name == choice.name for tool in tools):
            raise not_run("tool_choice.name", choice.name)
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type
