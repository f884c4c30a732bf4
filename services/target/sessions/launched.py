"""Leaves the interpreter to the engine's thread while it launches a round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from services.target.core.launching import LAUNCH_S, Launching


async def launched(launching: Launching) -> None:
    """Waits while a round is being launched; at once when none is, or when it takes long."""
    if not launching.lasts:
        return
    over = asyncio.Event()
    if launching.when_over(partial(post, asyncio.get_running_loop(), over.set)):
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), LAUNCH_S)


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: object) -> None:
    """Runs a call on the loop, from any thread; does nothing once the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *values)
