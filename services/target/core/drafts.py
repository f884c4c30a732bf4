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
    true, the runner's launch calls `hold` before the verify. Landing any round calls `watch`. `HandoffMode` tells the
    ways in which drafts come.
    """

    generation: int
    """Number of the attachment, which tags its drafts; 0 without an attachment."""

    @property
    def speculating(self) -> bool:
        """Whether the drafter can be asked for drafts now."""
        ...

    def publish(self, plan: Plan) -> None:
        """Sees to it that a drafter that is asked next finds the round's inputs, whose copies are enqueued."""
        ...

    def ask(self, plan: Plan) -> None:
        """Asks the drafter for the round without waiting for an answer; `publish` came before."""
        ...

    def wait(self, plan: Plan) -> bool:
        """Waits until the drafts of the round have come, or leaves that wait to the device.

        Returns:
            True when the drafts have come, or the device will wait for them. That wait may end without drafts
            (`watch`); the verify then accepts none. False when the drafter is late or gone; ``speculating`` stays
            false from then on.
        """
        ...

    def hold(self, plan: Plan, copied: bool = False) -> None:
        """Enqueues what the verify, which comes next, still lacks: a wait for drafts, or their copy to the device.

        What is `copied` to the host before the verify waits too, also where the verify begins with the wait itself.
        """
        ...

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits for the mark behind the verify; None on a CPU, where the verify is done when `launch` returns.

        Where the device waits for drafts, this ends that wait when the drafter is late or gone.
        """
        ...

    @property
    def fallback(self) -> str:
        """Why there are no drafts ("none", "late", "lost"); empty while there are."""
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

    def hold(self, plan: Plan, copied: bool = False) -> None:
        """Does nothing: there are no drafts to wait for."""

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits for the device; no drafter can delay it."""
        if done is not None:
            done.synchronize()
