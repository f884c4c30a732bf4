"""The interface of a hand-off to the target, and of an attachment to a hand-off; and rounds asked for by messages."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Protocol

import torch

from services.common.pair.flag_wait import FlagWait
from services.common.pair.handoff import HandoffMode
from services.common.pair.turns import NODES, Ask
from services.target.core.drafts import Drafts, Mark
from services.target.core.plan import Plan
from services.target.drafting.handoff.generations import Generations
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.pace import Pace, PaceStream


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


_LEAST_WAIT_S = 0.05


class MessageDrafts(AttachedDrafts):
    """Drafts that have come when their answer has. One that comes `watchdog_s` after the ask ends the attachment."""

    def __init__(self, attachment: Attached, pace: Pace, device: torch.device) -> None:
        """Asks over `pace`; `device` is the target's."""
        super().__init__(attachment)
        self._pace = pace
        self._device = device
        self._asked = 0.0

    def publish(self, plan: Plan) -> None:
        """Waits for the copies on a GPU, because the message must not overtake them."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def ask(self, plan: Plan) -> None:
        """Sends the round and starts the watchdog's time."""
        self._asked = time.monotonic()
        self._pace.send(Ask(self.generation, plan.number, plan.bucket, plan.width, len(plan.rows), NODES * plan.nodes))

    def wait(self, plan: Plan) -> bool:
        """Waits for the answer to this round; answers to others are skipped."""
        attachment = self.attachment
        deadline = max(self._asked + attachment.watchdog_s, time.monotonic() + _LEAST_WAIT_S)
        while attachment.speculating:
            try:
                # A flood of wrong answers must not hold the engine longer than no answer at all.
                reply = self._pace.receive(_left(deadline))
            except TimeoutError:
                attachment.give_up()
                break
            if reply is None:
                attachment.lose()
            elif (reply.generation, reply.round) == (self.generation, plan.number):
                attachment.observe(max(time.monotonic() - self._asked - reply.draft_us / 1e6, 0.0))
                return True
        return False

    def hold(self, plan: Plan) -> None:
        """Does nothing: the host has waited for the drafts."""

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits for the device alone: the drafts came before the verify, so no drafter can delay it."""
        if done is not None:
            done.synchronize()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError
    return left
