"""An attachment without a drafter."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeAttachment:
    """Ends when a test says so; `stream` is what a hand-off may ask over."""

    generation: int = 1
    watchdog_s: float = 0.01
    stream: Any = None
    speculating: bool = True
    fallback: str = ""
    observed: list[float] = field(default_factory=list)

    def observe(self, seconds: float) -> None:
        """Keeps the time."""
        self.observed.append(seconds)

    def give_up(self) -> None:
        """The drafter is late."""
        self.speculating, self.fallback = False, "late"

    def lose(self) -> None:
        """The drafter is gone."""
        self.speculating, self.fallback = False, "lost"

    def at_end(self, call: Callable[[], object]) -> None:
        """Nothing ends here by itself."""
