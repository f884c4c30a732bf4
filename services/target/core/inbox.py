"""A thread-safe inbox of commands, which the engine empties between rounds."""

from __future__ import annotations

import queue
from time import monotonic

from services.target.core.commands import Command

_APART_S, _TOGETHER_S = 0.5e-3, 3e-3
"""Commands that come so close one after another are of one burst, which is gathered for so long at most."""


class Inbox:
    """Commands in order of arrival."""

    def __init__(self) -> None:
        """Starts empty."""
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def put(self, command: Command) -> None:
        """Adds a command; any thread may call this."""
        self._queue.put(command)

    def take(self) -> list[Command]:
        """Everything that has arrived, without waiting."""
        commands: list[Command] = []
        while True:
            try:
                commands.append(self._queue.get_nowait())
            except queue.Empty:
                return commands

    def wait(self, timeout_s: float) -> list[Command]:
        """Everything that has arrived, waiting for the first command at most ``timeout_s``."""
        first = self._next(timeout_s)
        return [] if first is None else [first, *self.take()]

    def gather(self) -> list[Command]:
        """Everything that has arrived and what comes close behind it: the requests of a burst come one by one."""
        commands, end = self.take(), monotonic() + _TOGETHER_S
        while monotonic() < end and (command := self._next(_APART_S)) is not None:
            commands += [command, *self.take()]
        return commands

    def _next(self, timeout_s: float) -> Command | None:
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
