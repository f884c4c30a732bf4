"""The engine's thread: when it waits for commands, gathers them, or takes what is there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

from services.target.core.commands import Command
from services.target.core.inbox import Inbox
from services.target.engine.engine import Engine
from services.target.engine.thread import EngineThread
from tests.unit.target.core.specs import prompt, request
from tests.unit.target.engine.test_engine_ahead import VOCAB, ahead


class WatchedInbox(Inbox):
    """Says how it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def take(self) -> list[Command]:
        self.log.append("take")
        return []

    def gather(self) -> list[Command]:
        self.log.append("gather")
        return []

    def wait(self, timeout_s: float) -> list[Command]:
        self.log.append("wait")
        return []


class ScriptedEngine:
    """Has prompts alone in flight after its second turn, rows after its third, and is idle after that."""

    def __init__(self) -> None:
        self.turns, self.over = 0, threading.Event()

    @property
    def prompts_run(self) -> bool:
        return self.turns == 2

    def turn(self, commands: Sequence[Command]) -> bool:
        self.turns += 1
        if self.turns == 5:
            self.over.set()
        return 1 < self.turns < 4

    def land(self) -> None:
        """Nothing is in flight."""


def test_commands_are_gathered_while_prompts_alone_run() -> None:
    engine, inbox = ScriptedEngine(), WatchedInbox()
    thread = EngineThread(cast("Engine", cast("Any", engine)), inbox, lambda error: None)
    thread.start()
    assert engine.over.wait(20.0)
    assert thread.stop()
    assert inbox.log[:5] == ["take", "wait", "gather", "take", "wait"]


def test_an_engine_tells_that_prompts_alone_run() -> None:
    """Not where a row decodes, behind its own prompt or beside another one."""
    it, _ = ahead()
    seen = [it.engine.prompts_run]
    for commands in ([it.start(request("a", prompt(1, 9, VOCAB), 60))], [], [it.start(request("b", (5, 6), 10))]):
        it.turn(*commands)
        seen.append(it.engine.prompts_run)
    it.run()
    assert [*seen, it.engine.prompts_run] == [False, True, False, False, False]
