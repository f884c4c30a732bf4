"""Drains a target: reports NOT_SERVING, waits for watchers, sends GoAway, finishes or moves requests, closes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.target.core.commands import Command, Drain, MoveAll
from services.target.engine.engine import Engine
from services.target.sessions.sessions import Sessions

_POLL_S = 0.02
_FLUSH_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainParts:
    """The parts that draining uses; times in seconds."""

    set_serving: Callable[[bool], Awaitable[None]]
    submit: Callable[[Command], None]
    engine: Engine
    sessions: Sessions
    propagation_s: float
    grace_s: float


async def drain(parts: DrainParts) -> None:
    """Takes nothing new, lets requests finish within the grace, moves the rest, and ends every session."""
    await parts.set_serving(False)
    parts.sessions.go_away(parts.propagation_s + parts.grace_s)
    await asyncio.sleep(parts.propagation_s)
    parts.submit(Drain())
    await _idle(parts.engine, parts.grace_s)
    parts.submit(MoveAll())
    await _idle(parts.engine, _FLUSH_S)
    await asyncio.sleep(_POLL_S)
    parts.sessions.close_all()


async def _idle(engine: Engine, timeout_s: float) -> None:
    """Waits until no request is live and the engine has turned since, or the time is up."""
    end = time.monotonic() + timeout_s
    turns = engine.turns
    while (engine.pending or engine.turns < turns + 2) and time.monotonic() < end:
        await asyncio.sleep(_POLL_S)
