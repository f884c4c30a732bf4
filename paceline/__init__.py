"""Clients of paceline, synchronous and asyncio, and the command `paceline`."""

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
