"""Rounds that the target's host asks for by messages: over the side socket, or on Pace, and waits for the answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import torch

from services.common.pair.arena import Arena
from services.common.pair.flag_wait import FlagWait
from services.common.pair.handoff import HandoffMode
from services.common.pair.turns import DRAWN, NODES, Ask, asking_end
from services.target.core.drafts import Drafts, Mark
from services.target.core.plan import Plan
from services.target.drafting.handoff.generations import Generations
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.pace import Pace
from services.target.drafting.handoff.protocol import Attached, AttachedDrafts


class MessageHandoff:
    """HandoffMode.HOST, for any device: the portable fallback; or HandoffMode.SOCKET, for an arena in host memory.

    A drafter that keeps no connection of the side socket is asked by Pace; `in_use` is then `host`.
    """

    look_ahead = 0
    gate: FlagWait | None = None

    def __init__(self, wanted: HandoffMode, arena: Arena, device: torch.device) -> None:
        """The drafter fills the arena's mailbox."""
        self.wanted = wanted
        self.in_use = str(wanted)
        self.mailbox = Mailbox.shared(arena)
        self.generations = Generations()
        self._device = device

    def open(self, attachment: Attached, take_connection: Callable[[], socket.socket | None]) -> Drafts:
        """Asks over the connection that the arena was fetched by, which ends with the attachment, or over its stream.

        Where there is a connection, the stream only tells when the attachment is over.
        """
        connection = take_connection() if self.wanted is HandoffMode.SOCKET else None
        if connection is None:
            self.in_use = str(HandoffMode.HOST)
            return MessageDrafts(attachment, attachment.stream, self._device)
        self.in_use = str(HandoffMode.SOCKET)
        turns = asking_end(connection)
        attachment.at_end(turns.close)
        return MessageDrafts(attachment, turns, self._device)


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
        bits = NODES * plan.nodes | DRAWN * plan.drawn
        self._pace.send(Ask(self.generation, plan.number, plan.bucket, plan.width, len(plan.rows), bits))

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

    def hold(self, plan: Plan, copied: bool = False) -> None:
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
