"""Where drafts come from, as the engine sees it."""

from __future__ import annotations

from typing import Protocol

from services.target.core.plan import Plan


class Drafts(Protocol):
    """One attachment of a drafter, or none. All methods are called from the engine's thread."""

    generation: int
    """Tags the drafts that count; 0 without an attachment."""

    @property
    def speculating(self) -> bool:
        """Whether asking makes sense now."""
        ...

    def ask(self, plan: Plan) -> None:
        """Sends the round to the drafter and does not wait; the round's inputs are published already."""
        ...

    def wait(self, plan: Plan) -> bool:
        """Waits until the mailbox holds the drafts of the round.

        Returns:
            Whether it does; false once the drafter is late or gone, and from then on ``speculating`` is false.
        """
        ...

    @property
    def fallback(self) -> str:
        """Why there are no drafts; empty while there are."""
        ...


class NoDrafts:
    """No drafter is attached: every round is plain."""

    generation = 0
    speculating = False

    def __init__(self, fallback: str = "none") -> None:
        """Remembers why."""
        self.fallback = fallback

    def ask(self, plan: Plan) -> None:
        """Does nothing."""

    def wait(self, plan: Plan) -> bool:
        """Nothing comes."""
        return False
