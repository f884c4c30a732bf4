"""The engine's own thread: empties the inbox, calls `turn`, and reports the engine's death."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from services.common.device.threads import inference, stay_on_core
from services.target.core.commands import Command
from services.target.core.inbox import Inbox
from services.target.engine.engine import Engine

_LOG = logging.getLogger(__name__)
_IDLE_S = 0.25


class EngineThread:
    """Runs an engine until stopped; ``failed`` is called once, on that thread, when the engine dies."""

    def __init__(self, engine: Engine, inbox: Inbox, failed: Callable[[BaseException], None], core: int = -1) -> None:
        """Does not start the thread yet; it stays on ``core`` unless that is -1."""
        self.engine = engine
        self._failed = failed
        self._core = core
        self._inbox = inbox
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Gives the engine a command, which it obeys before its next round; any thread may call this."""
        self._inbox.put(command)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Ends the thread after the present round; False if it did not end in time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _awaited(self, busy: bool) -> list[Command]:
        """What the next turn obeys: a round planned behind the first prompt of a burst shall hold the others."""
        return self._inbox.gather() if busy else self._inbox.wait(_IDLE_S)

    def _run(self) -> None:
        busy = True
        stay_on_core(self._core)
        try:
            with inference():
                while not self._stopping.is_set():
                    decodes = busy and not self.engine.prompts_run
                    busy = self.engine.turn(self._inbox.take() if decodes else self._awaited(busy))
                self.engine.land()
        except BaseException as error:
            _LOG.critical("the engine has died: %s", error, exc_info=error)
            self._failed(error)
