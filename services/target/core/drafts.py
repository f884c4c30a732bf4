"""Where drafts come from, as the engine sees it."""

from __future__ import annotations

from typing import Protocol

from services.target.core.plan import Plan


class Mark(Protocol):
    """A place on the device's stream, behind the work of a round."""

    def query(self) -> bool:
        """Whether the stream has come to it."""
        ...

    def synchronize(self) -> object:
        """Waits until it has."""
        ...


class Drafts(Protocol):
    """One attachment of a drafter, or none. All methods are called from the engine's thread.

    A speculative round calls `publish`, `ask`, `wait`, then `hold` if it is drafted; every round ends with `watch`.
    """

    generation: int
    """Tags the drafts that count; 0 without an attachment."""

    @property
    def speculating(self) -> bool:
        """Whether asking makes sense now."""
        ...

    def publish(self, plan: Plan) -> None:
        """The round's inputs are enqueued: the drafter may begin when they are there."""
        ...

    def ask(self, plan: Plan) -> None:
        """Sends the round to the drafter and does not wait; the round's inputs are published already."""
        ...

    def wait(self, plan: Plan) -> bool:
        """Waits until the mailbox holds the drafts of the round, or leaves that wait to the device.

        Returns:
            Whether it does or will; false once the drafter is late or gone, and from then on ``speculating`` is false.
        """
        ...

    def hold(self, plan: Plan) -> None:
        """The next thing on the stream reads the mailbox: it must find the drafts there."""
        ...

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits for the mark behind the round's verify; without one the verify is done."""
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

    def publish(self, plan: Plan) -> None:
        """Nobody reads."""

    def ask(self, plan: Plan) -> None:
        """Nobody answers."""

    def wait(self, plan: Plan) -> bool:
        """Nothing comes."""
        return False

    def hold(self, plan: Plan) -> None:
        """There is nothing to wait for."""

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits for the device alone."""
        if done is not None:
            done.synchronize()
