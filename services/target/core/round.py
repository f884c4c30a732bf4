"""One round on its way through the engine's verbs, and the runner as the engine sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.target.core.drafts import Drafts
from services.target.core.plan import Commit, Outcome, Plan, PromptScores


class RoundOutput(Protocol):
    """The handle of a launched round. Times are microseconds; the last two are known once the round has landed."""

    prepare_us: float
    """Applying the plan and publishing the drafter's inputs."""
    prefill_us: float
    """Prompt chunks."""
    verify_us: float
    """The verify forward."""
    host_us: float
    """Reading the outcomes."""

    @property
    def scores(self) -> Sequence[PromptScores]:
        """Of prompts, once the round has landed."""
        ...

    def rule(self) -> None:
        """Makes the masks that rows of it wait for, while it runs; the round before it must have landed."""
        ...

    def land(self) -> tuple[Outcome, ...]:
        """Waits for the round and returns what it committed; called once, in the order of the launches."""
        ...


class RoundRunner(Protocol):
    """The device side of rounds.

    One thread calls prepare, overlap and launch for each, then `land` of what launch returned.
    """

    look_ahead: int
    """Rounds that may be launched before the one ahead of them has landed."""

    @property
    def sound(self) -> bool:
        """Whether the device still works; after a fatal fault of it no round can."""
        ...

    def use(self, drafts: Drafts) -> None:
        """Takes drafts of this attachment alone from now on."""
        ...

    def prepare(self, plan: Plan) -> None:
        """Applies the plan and publishes what the drafter reads."""
        ...

    def overlap(self, plan: Plan) -> None:
        """Does the work that needs no drafts."""
        ...

    def launch(self, plan: Plan, drafted: bool) -> RoundOutput:
        """Enqueues the plan's forward: at the plan's width if it is `drafted`, else at width 1."""
        ...


@dataclass(slots=True)
class Round:
    """One round, filled as it goes: planned, drafted, launched, committed.

    ``drafted`` says that it is verified at the plan's width, because `Drafts.wait` was true. ``fallback`` says why a
    speculative round has no drafts. The engine waited ``draft_us`` for drafts and spent ``engine_us`` on the whole
    round, in microseconds. A round is ``over`` when nothing is left to do: its plan is empty, or it has failed.
    """

    plan: Plan
    drafted: bool = False
    fallback: str = ""
    draft_us: int = 0
    engine_us: float = 0.0
    output: RoundOutput = field(init=False)
    outcomes: tuple[Outcome, ...] = ()
    commit: Commit = field(init=False)
    over: bool = False


NO_ROUND = Round(Plan(0, 1, (), 0, (), (), (), ()), over=True)
"""The value where no round is in flight; it is over."""
