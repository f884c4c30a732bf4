"""Clients of paceline, synchronous and asyncio, and the command `paceline`."""

from importlib import import_module

TYPE_CHECKING = False
"""Checkers take it for true. `typing` is not imported here: Ctrl-C is not taken yet, as it is from `__main__` on."""

if TYPE_CHECKING:
    from typing import Any

    from paceline.aio import AsyncClient, AsyncStream
    from paceline.answer import Answer, Piece, PositionLogprobs, TokenLogprob
    from paceline.channel import Tls
    from paceline.client import Client, Stream
    from paceline.errors import InvalidValueError, NoGatewayError, PacelineError, RefusedError
    from paceline.options import Message, Options, Prompt, Tool, ToolCall
    from paceline.served import Activity, Model, Pair, Status

__version__ = "0.1.0"

__all__ = [
    "Activity",
    "Answer",
    "AsyncClient",
    "AsyncStream",
    "Client",
    "InvalidValueError",
    "Message",
    "Model",
    "NoGatewayError",
    "Options",
    "PacelineError",
    "Pair",
    "Piece",
    "PositionLogprobs",
    "Prompt",
    "RefusedError",
    "Status",
    "Stream",
    "Tls",
    "TokenLogprob",
    "Tool",
    "ToolCall",
]

_MODULES = {
    "aio": ("AsyncClient", "AsyncStream"),
    "answer": ("Answer", "Piece", "PositionLogprobs", "TokenLogprob"),
    "channel": ("Tls",),
    "client": ("Client", "Stream"),
    "errors": ("InvalidValueError", "NoGatewayError", "PacelineError", "RefusedError"),
    "options": ("Message", "Options", "Prompt", "Tool", "ToolCall"),
    "served": ("Activity", "Model", "Pair", "Status"),
}
"""Where each name lies: gRPC is imported with the first of them, which the command `paceline` may not need."""

_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> "Any":
    """One of the names above, from its module.

    Raises:
        AttributeError: there is no such name.
    """
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found


def __dir__() -> list[str]:
    """All names, imported or not."""
    return sorted({*globals(), *__all__})
