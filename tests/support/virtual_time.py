"""An event loop whose clock goes on only where nothing is left to do: waits take no time, and runs are repeatable."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Selector(selectors.SelectSelector):
    """Lets the time for which it would have waited pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everything waits for something that never comes"
            self.now += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time` begins at 0 and belongs to it alone."""

    def __init__(self) -> None:
        """Has a selector of its own."""
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds that have passed in here."""
        return self._virtual.now


def now() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs to its end in a loop of its own."""

    @functools.wraps(test)
    def run(*values: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*values, **named))

    return run
