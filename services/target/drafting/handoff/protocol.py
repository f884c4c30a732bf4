"""The interface of a hand-off to the target, and of an attachment to a hand-off."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from services.common.pair.flag_wait import FlagWait
from services.common.pair.handoff import HandoffMode
from services.target.core.drafts import Drafts
from services.target.drafting.handoff.generations import Generations
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.pace import PaceStream


class Attached(Protocol):
    """One attachment: who drafts, over which stream, and whether it is still in time."""

    generation: int
    watchdog_s: float
    stream: PaceStream
    speculating: bool
    fallback: str

    def observe(self, seconds: float) -> object:
        """Takes the seconds from asking for a round to its answer, less the drafter's own time.

        Flags never call it: no host waits for an answer there.
        """
        ...

    def give_up(self) -> None:
        """Ends the attachment: the drafter is late (quarantined, see `AttacherSettings`)."""
        ...

    def lose(self) -> None:
        """Ends the attachment: the drafter is gone."""
        ...

    def at_end(self, call: Callable[[], object]) -> None:
        """Registers a call for the end of the attachment; runs it at once if that has come."""
        ...


class Handoff(Protocol):
    """One mode for the life of a target; makes the drafts of each attachment."""

    wanted: HandoffMode
    """What attachments are offered."""
    in_use: str
    """What the last attachment uses; before the first one, what is wanted."""
    look_ahead: int
    """Rounds that may be launched before the one ahead of them is read."""
    gate: FlagWait | None
    """The wait for drafts at the head of captured steps that read them; None where the stream or the host waits."""
    mailbox: Mailbox
    """What verify copies drafts from."""
    generations: Generations
    """Numbers the attachments."""

    def open(self, attachment: Attached, take_connection: Callable[[], socket.socket | None]) -> Drafts:
        """The drafts of an attachment; any thread may call this.

        `take_connection` returns the connection that the drafter keeps from the side socket, None when it keeps none.
        """
        ...


class AttachedDrafts:
    """The part of `Drafts` that is the same in every mode."""

    def __init__(self, attachment: Attached) -> None:
        """Drafts of one attachment."""
        self.attachment = attachment
        self.generation = attachment.generation

    @property
    def speculating(self) -> bool:
        """Whether the drafter is alive and in time so far."""
        return self.attachment.speculating

    @property
    def fallback(self) -> str:
        """Why there are no drafts; empty while there are."""
        return self.attachment.fallback
