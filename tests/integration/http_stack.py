"""A gateway over fake targets, and a client of its HTTP listener."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.gateway_stack import Harness, harness
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Client

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """The body of a chat."""
    return {"model": "fake", "messages": [{"role": "user", "content": text}], "seed": 5, "max_tokens": 32} | fields


def completion(prompt: Any = "hello", **fields: Any) -> dict[str, Any]:
    """The body of a completion."""
    return {"model": "fake", "prompt": prompt, "seed": 5, "max_tokens": 32} | fields


@asynccontextmanager
async def serving(
    folder: Path, fakes: list[FakeTarget] | None = None, **changes: Any
) -> AsyncIterator[tuple[Harness, Client]]:
    """Starts targets and a gateway with both listeners."""
    async with harness(folder, fakes, **{"http": "127.0.0.1:0"} | changes) as one:
        yield one, Client(one.bound.http)
