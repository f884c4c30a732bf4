"""Where drafts come from, as the engine sees it."""

from __future__ import annotations

from typing import Protocol

from services.target.core.plan import Plan


class Mark(Protocol):
    """A mark on the device's stream behind the work of a round."""

    def query(self) -> bool:
        """Whether the stream has reached the mark."""
        ...

    def synchronize(self) -> object:
        """Waits until the stream has reached the mark."""
        ...


class Drafts(Protocol):
    """One attachment of a drafter, or none. All methods are called from the engine's thread.

    In a speculative round the runner's prepare calls `publish`, then the engine calls `ask` and `wait`. If `wait` is
    true, the runner's launch calls `hold` before the verify. Landing any round calls `watch`.
    """

    generation: int
    """Number of the attachment, which tags its drafts; 0 without an attachment."""

    @property
    def speculating(self) -> bool:
        """Whether the drafter can be asked for drafts now."""
        ...

    def publish(self, plan: Plan) -> None:
        """Lets the drafter begin as soon as the round's inputs, whose copies are enqueued, are written."""
        ...

    def ask(self, plan: Plan) -> None:
        """Asks the drafter for the round without waiting for an answer; `publish` came before."""
        ...

    def wait(self, plan: Plan) -> bool:
        """Waits until the mailbox holds the drafts of the round, or leaves that wait to the device.

        Returns:
            True when the mailbox holds the drafts, or will when the device's wait is over. False when the drafter is
            late or gone; ``speculating`` stays false from then on.
        """
        ...

    def hold(self, plan: Plan) -> None:
        """Makes the stream wait for the drafts where the host has not; the verify comes next on it."""
        ...

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits until the verify of the round is done: for the mark behind it, or not at all where there is no mark."""
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
        """Does nothing: no drafter reads."""

    def ask(self, plan: Plan) -> None:
        """Does nothing: no drafter answers."""

    def wait(self, plan: Plan) -> bool:
        """Returns false: no drafts come."""
        return False

    def hold(self, plan: Plan) -> None:
        """Does nothing: there are no drafts to wait for."""

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits for the device; no drafter can delay it."""
        if done is not None:
            done.synchronize()
