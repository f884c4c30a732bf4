"""Drains a target: reports NOT_SERVING, waits for watchers, sends GoAway, finishes or moves requests, closes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from services.target.core.commands import Drain, MoveAll
from services.target.engine.engine import Engine
from services.target.engine.thread import EngineThread
from services.target.sessions.sessions import Sessions

_POLL_S = 0.02
_FLUSH_S = 2.0


async def drain(
    set_serving: Callable[[bool], Awaitable[None]],
    thread: EngineThread,
    sessions: Sessions,
    propagation_s: float,
    grace_s: float,
) -> None:
    """Takes nothing new, lets requests finish within the grace, moves the rest, and ends every session."""
    await set_serving(False)
    sessions.go_away(propagation_s + grace_s)
    await asyncio.sleep(propagation_s)
    thread.submit(Drain())
    await _idle(thread.engine, grace_s)
    thread.submit(MoveAll())
    await _idle(thread.engine, _FLUSH_S)
    await asyncio.sleep(_POLL_S)
    sessions.close_all()


async def _idle(engine: Engine, timeout_s: float) -> None:
    """Waits until no request is live and the engine has turned since, or the time is up."""
    end = time.monotonic() + timeout_s
    turns = engine.turns
    while (engine.pending or engine.turns < turns + 2) and time.monotonic() < end:
        await asyncio.sleep(_POLL_S)
