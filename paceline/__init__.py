"""Clients of paceline, synchronous and asyncio, and the command `paceline`."""

from paceline.aio import AsyncClient, AsyncStream
from paceline.answer import Answer, Piece
from paceline.channel import Tls
from paceline.client import Client, Stream
from paceline.errors import NoGatewayError, PacelineError, RefusedError
from paceline.options import Message, Options, Prompt, Tool, ToolCall

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncStream",
    "Client",
    "Message",
    "NoGatewayError",
    "Options",
    "PacelineError",
    "Piece",
    "Prompt",
    "RefusedError",
    "Stream",
    "Tls",
    "Tool",
    "ToolCall",
]
