"""Tools of OpenAI's Responses API, and the functions that they are in a chat.

A namespace is a folder of functions, and a custom tool one whose only argument is a text. Calls of both come back in
their own forms (ADR 0088).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from services.common.request.errors import invalid_field
from services.common.request.limits import LIMITS
from services.gateway.http.schema.base import Body, Ignored
from services.gateway.http.schema.hosted import HostedTool, is_hosted, not_run, type_of

INPUT = "input"
"""The only argument of a custom tool."""


class FunctionTool(Body):
    """A tool."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: Ignored = None
    allowed_callers: Ignored = None
    output_schema: Ignored = None


class TextFormat(Body):
    """What the text of a custom tool is; a grammar is told to the model."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class CustomTool(Body):
    """A tool that takes a text."""

    type: Literal["custom"]
    name: str
    description: str | None = None
    format: TextFormat | None = None
    defer_loading: Ignored = None
    allowed_callers: Ignored = None


def _tag(value: Any) -> Any:
    """A function has another name than the field of one, which stands behind it in refusals of chats."""
    kind = type_of(value, "function")
    return "hosted tool" if is_hosted(kind) else "function tool" if kind == "function" else kind


Called = Annotated[
    Annotated[FunctionTool, Tag("function tool")] | Annotated[CustomTool, Tag("custom")], Discriminator(_tag)
]


class Namespace(Body):
    """Tools of one origin, as those of an MCP server that a client runs."""

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: list[Called] = Field(fail_fast=True, max_length=LIMITS.chat_tools)


AnyTool = Annotated[
    Annotated[HostedTool, Tag("hosted tool")]
    | Annotated[FunctionTool, Tag("function tool")]
    | Annotated[CustomTool, Tag("custom")]
    | Annotated[Namespace, Tag("namespace")],
    Discriminator(_tag),
]


class NamedTool(Body):
    """The tool that must be called."""

    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class AllowedIn(Body):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = "auto"
    tools: list[
        Annotated[
            Annotated[HostedTool, Tag("hosted tool")]
            | Annotated[NamedTool, Tag("function tool")]
            | Annotated[NamedTool, Tag("custom")],
            Discriminator(_tag),
        ]
    ] = Field(fail_fast=True, max_length=LIMITS.chat_tools)


def _tag_of_choice(value: Any) -> Any:
    kind = type_of(value, "function")
    return "named" if kind in ("function", "custom") else "hosted tool" if is_hosted(kind) else kind


AnyChoice = Annotated[
    Annotated[NamedTool, Tag("named")]
    | Annotated[AllowedIn, Tag("allowed_tools")]
    | Annotated[HostedTool, Tag("hosted tool")],
    Discriminator(_tag_of_choice),
]


class Tools:
    """The tools of a response as those of a chat, each with its place, and calls as the client knows them."""

    def __init__(self, tools: Sequence[HostedTool | FunctionTool | CustomTool | Namespace]) -> None:
        """Takes them in their order."""
        self.chat: list[dict[str, Any]] = []
        self.places: list[str] = []
        self._known: dict[str, tuple[str, str, bool]] = {}
        for index, tool in enumerate(tools):
            at = f"tools[{index}]"
            if isinstance(tool, Namespace):
                for inner, one in enumerate(tool.tools):
                    self._add(one, f"{at}.tools[{inner}]", tool.name)
            elif isinstance(tool, HostedTool):
                self._put({"type": tool.type}, at)
            else:
                self._add(tool, at, "")

    def called(self, name: str) -> tuple[str, str, bool]:
        """The name that a client knows, its namespace, and whether it takes a text."""
        return self._known.get(name, (name, "", False))

    def _put(self, tool: dict[str, Any], place: str) -> None:
        self.chat.append(tool)
        self.places.append(place)

    def _add(self, tool: FunctionTool | CustomTool, place: str, namespace: str) -> None:
        name, custom = joined(tool.name, namespace), isinstance(tool, CustomTool)
        known, plain = self._known.get(name), (name, "", False)
        if known is not None and (namespace or custom or known != plain):
            raise invalid_field(f"{place}.name", f"{name[:64]!r} is another tool's name too")
        self._known.setdefault(name, (tool.name, namespace, custom))
        function: dict[str, Any] = {"name": name, "description": tool.description}
        if isinstance(tool, CustomTool):
            function["parameters"] = _one_text(tool.format)
        else:
            function["parameters"] = tool.parameters
            if tool.strict is not None:
                function["strict"] = tool.strict
        self._put({"type": "function", "function": function}, place)

    def choice(self, choice: NamedTool | AllowedIn | HostedTool | str | None) -> Any:
        """A choice as a chat has it.

        Raises:
            PacelineError: UNSUPPORTED, it is of tools that a provider runs alone.
        """
        if isinstance(choice, HostedTool):
            raise not_run("tool_choice.type", choice.type)
        if isinstance(choice, NamedTool):
            return _named(choice)
        if isinstance(choice, AllowedIn):
            left = [_named(tool) for tool in choice.tools if isinstance(tool, NamedTool)]
            if choice.tools and not left:
                raise not_run("tool_choice.tools[0].type", choice.tools[0].type)
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": left}}
        return choice


def joined(name: str, namespace: str | None) -> str:
    """The one name of a function in a namespace, as the model reads and writes it."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def arguments_of(text: str) -> str:
    """The arguments of a call of a custom tool."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def text_of(arguments: str) -> str:
    """The text of a call of a custom tool; where the model wrote other arguments these themselves."""
    found = json.loads(arguments)
    text = found.get(INPUT) if isinstance(found, Mapping) else None
    return text if isinstance(text, str) and len(found) == 1 else arguments


def _one_text(form: TextFormat | None) -> dict[str, Any]:
    held: dict[str, Any] = {"type": "string"}
    if form is not None and form.type == "grammar" and form.definition:
        held["description"] = f"A text of this grammar ({form.syntax or 'lark'}):\n{form.definition}"
    return {"type": "object", "properties": {INPUT: held}, "required": [INPUT], "additionalProperties": False}


def _named(tool: NamedTool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": joined(tool.name, tool.namespace)}}
