"""Rounds that are asked for and answered by messages: the target's host waits for each answer."""

from __future__ import annotations

import time

from services.common.pair.turns import Ask
from services.target.core.drafts import Mark
from services.target.core.plan import Plan
from services.target.drafting.handoff.pace import Pace
from services.target.drafting.handoff.protocol import Attached, AttachedDrafts

_LEAST_WAIT_S = 0.05


class MessageDrafts(AttachedDrafts):
    """Drafts that are there when their answer is; the first late answer gives the drafter up."""

    def __init__(self, attachment: Attached, pace: Pace) -> None:
        """Asks over `pace`."""
        super().__init__(attachment)
        self._pace = pace
        self._asked = 0.0

    def ask(self, plan: Plan) -> None:
        """Sends the round; the watchdog's time starts."""
        self._asked = time.monotonic()
        self._pace.send(Ask(self.generation, plan.number, plan.bucket, plan.width, len(plan.rows)))

    def wait(self, plan: Plan) -> bool:
        """Waits for the answer to this round; answers to others are skipped."""
        attachment = self.attachment
        deadline = max(self._asked + attachment.watchdog_s, time.monotonic() + _LEAST_WAIT_S)
        while attachment.speculating:
            try:
                # A flood of wrong answers must not keep the engine beyond the time that silence would.
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
        """The drafts are there: the host has waited for them."""

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """No drafter can hold the verify up."""
        if done is not None:
            done.synchronize()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError
    return left
