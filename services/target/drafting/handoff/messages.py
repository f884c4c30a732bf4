"""Rounds that are asked for and answered by messages; the target's host waits for each answer."""

from __future__ import annotations

import time

from services.common.pair.turns import Ask
from services.target.core.drafts import Mark
from services.target.core.plan import Plan
from services.target.drafting.handoff.pace import Pace
from services.target.drafting.handoff.protocol import Attached, AttachedDrafts

_LEAST_WAIT_S = 0.05


class MessageDrafts(AttachedDrafts):
    """Drafts that have come when their answer has. One that comes `watchdog_s` after the ask ends the attachment."""

    def __init__(self, attachment: Attached, pace: Pace) -> None:
        """Asks over `pace`."""
        super().__init__(attachment)
        self._pace = pace
        self._asked = 0.0

    def ask(self, plan: Plan) -> None:
        """Sends the round and starts the watchdog's time."""
        self._asked = time.monotonic()
        self._pace.send(Ask(self.generation, plan.number, plan.bucket, plan.width, len(plan.rows), plan.nodes))

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
