"""One round's values as they pass from step to step, and the runner as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.target.core.plan import Outcome, Plan


class Times(Protocol):
    """Where a round's time went, microseconds."""

    @property
    def prepare_us(self) -> int:
        """Applying the plan and publishing the drafter's inputs."""
        ...

    @property
    def prefill_us(self) -> int:
        """Prompt chunks."""
        ...

    @property
    def verify_us(self) -> int:
        """The verify forward."""
        ...

    @property
    def host_us(self) -> int:
        """Reading the outcomes."""
        ...


Landing = Callable[[], tuple[Times, tuple[Outcome, ...]]]
"""Waits for a launched round and returns what it committed; called once, in the order of the launches."""


class RoundRunner(Protocol):
    """The device side of a round. One thread may call it, in the order prepare, overlap, launch, landing."""

    @property
    def look_ahead(self) -> int:
        """Rounds that may be launched before the one ahead of them has landed."""
        ...

    @property
    def sound(self) -> bool:
        """Whether the device still works; after a fatal fault of it no round can."""
        ...

    def set_generation(self, generation: int) -> None:
        """Drafts of this attachment count from now on."""
        ...

    def prepare(self, plan: Plan) -> None:
        """Applies the plan and publishes what the drafter reads."""
        ...

    def overlap(self, plan: Plan) -> None:
        """Does the work that needs no drafts."""
        ...

    def launch(self, plan: Plan, drafted: bool) -> Landing:
        """Starts the plan, at width 1 unless it is drafted."""
        ...


@dataclass(frozen=True, slots=True)
class Drafted:
    """Whether the mailbox holds the round's drafts, and how long the engine waited for them (microseconds)."""

    arrived: bool
    waited_us: int
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """What the runner made of a round; ``micros`` is its duration with the wait for drafts, None after a fault."""

    times: Times
    outcomes: tuple[Outcome, ...]
    micros: float | None
