"""Tools that a provider runs, as a search of the web: nothing here runs them, so a request is served without them.

What a client runs itself is never left out: an agent would wait for calls that cannot come (ADR 0088).
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from services.common.request.errors import PacelineError, unsupported
from services.gateway.http.schema.history import History

_RUN = (
    r"web_search|web_search_preview|web_fetch|file_search|code_interpreter|code_execution|image_generation|mcp"
    r"|mcp_toolset|tool_search_tool_bm25|tool_search_tool_regex|google_search|google_search_retrieval|url_context"
    r"|browser_search|retrieval|openrouter:\w{1,64}"
)
HOSTED = re.compile(rf"(?:{_RUN})(?:_\d{{4}}_?\d{{2}}_?\d{{2}})?")
_DAY = re.compile(r"_\d{4}_?\d{2}_?\d{2}$")
"""Their types, which may end with a day."""
NOT_RUN = "is a tool that a provider runs, and nothing here does; send a function that your program runs"
MOST_NAME = 64
"""Characters of a name that a refusal repeats."""


def is_hosted(type_: Any) -> bool:
    """Whether a type is one of tools that a provider runs."""
    return isinstance(type_, str) and HOSTED.fullmatch(type_) is not None


def kind_of(type_: str) -> str:
    """A type without its day, nor what a client may have invented in it: of these there are few."""
    return _DAY.sub("", type_).partition(":")[0]


def known(is_known: Callable[[str], bool]) -> AfterValidator:
    """Refuses other types: a client may have sent the word that stands here for all that is left out."""

    def checked(value: str) -> str:
        if not is_known(value):
            raise PydanticCustomError("unknown_type", "is no type that is known")
        return value

    return AfterValidator(checked)


class HostedTool(History):
    """A tool that a provider runs, whatever it says beside its type."""

    type: Annotated[str, known(is_hosted)]
    name: str = ""


def type_of(value: Any, otherwise: str) -> Any:
    """The type of a value of JSON, or of what it has become."""
    return value.get("type", otherwise) if isinstance(value, dict) else getattr(value, "type", None)


def tag_of_tool(value: Any) -> str:
    """Which form a tool of a chat has."""
    return "hosted tool" if is_hosted(type_of(value, "function")) else "function tool"


def not_run(field: str, name: str) -> PacelineError:
    """The refusal of what a provider runs, by the name that the client gave it."""
    return unsupported(field, f"{name[:MOST_NAME]!r} {NOT_RUN}")


def check_something_left(tools: Sequence[object]) -> None:
    """A request for nothing but what nobody runs asks for no answer without it.

    Raises:
        PacelineError: UNSUPPORTED, all tools are such.
    """
    if tools and all(isinstance(tool, HostedTool) for tool in tools):
        raise not_run("tools[0].type", getattr(tools[0], "type", ""))
