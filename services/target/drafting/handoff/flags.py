"""Hand-off by flags: the CUDA streams of target and drafter write 64-bit words of the arena and wait for them.

While a verify runs, the target's host enqueues the next round behind it and lets the drafter's host enqueue its draft.
When the verify is done, the target's stream publishes and writes `published`; the draft, which waited for that, runs
and writes `drafted`; the next verify, which waited for that, begins. No host acts in between.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import Protocol

from services.common.pair import attach
from services.common.pair.arena import Arena
from services.common.pair.arena.flags import FLAG_PAIRS, FlagPair
from services.common.pair.flag_wait import FlagWait
from services.common.pair.handoff import HandoffMode
from services.common.pair.mps import sharing
from services.common.pair.turns import BEHIND_PROMPTS, DRAWN, NODES, Answer, Ask, TurnSocket, asking_end
from services.target.core.drafts import Mark
from services.target.core.plan import Plan
from services.target.drafting.handoff.generations import FlagGenerations, Generations
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.protocol import Attached, AttachedDrafts

_LOG = logging.getLogger(__name__)
_FIRST_ROUND_S = 2.0
"""Time limit of an attachment's first draft: the driver loads kernels only then."""
_POLL_S = 50e-6


class Flags(Protocol):
    """The target's side of a generation's flags."""

    def publish(self, number: int) -> None:
        """Enqueues the write that says: the round's inputs are published."""
        ...

    def await_drafted(self, number: int) -> None:
        """Enqueues a wait for the round's drafts."""
        ...

    def release_target(self, number: int) -> None:
        """Ends that wait at once, from another stream: the verify then runs without drafts."""
        ...


class FlagHandoff:
    """For an arena on a GPU. The host reads the results of a round while the next round runs."""

    wanted = HandoffMode.FLAGS
    look_ahead = 1

    def __init__(self, arena: Arena, watchdog_s: float, pairs: int = FLAG_PAIRS) -> None:
        """`watchdog_s` is the time limit of a draft.

        Under MPS the steps of small rounds wait for drafts themselves: `gate` is their FlagWait.
        """
        shared = sharing("cuda")
        self.in_use = self.wanted.in_use(shared)
        self.mailbox = Mailbox.shared(arena)
        self.generations: Generations = FlagGenerations(pairs)
        self._flags = arena.tensor(attach.FLAGS)
        # Longer than any time limit of the host: the host, not the step, must be the one that gives a late drafter up.
        limit_s = 2 * max(watchdog_s, _FIRST_ROUND_S)
        self.gate = FlagWait(self._flags, "drafted", limit_s) if shared == "mps" else None

    def open(self, attachment: Attached, take_connection: Callable[[], socket.socket | None]) -> FlagDrafts:
        """Makes the flags of the attachment. Over gRPC a message costs both hosts as much as a round's launch."""
        connection, turns = take_connection(), None
        if connection is None:
            _LOG.info(
                "the drafter does not reach the side socket: it is asked for rounds over gRPC, which takes longer"
            )
        else:
            connection.setblocking(False)  # a drafter that does not read must not hold the engine
            turns = asking_end(connection)
            attachment.at_end(turns.close)
        return FlagDrafts(attachment, FlagPair(self._flags, attachment.generation), self.gate, turns)


class FlagDrafts(AttachedDrafts):
    """Drafts of one attachment. The host waits for no draft; `watch` finds out a drafter that is late or lost."""

    def __init__(
        self, attachment: Attached, flags: Flags, gate: FlagWait | None, turns: TurnSocket[Ask, Answer] | None = None
    ) -> None:
        """`gate` is the wait at the head of captured steps, `turns` the drafter's connection, if there is one."""
        super().__init__(attachment)
        self._turns = turns
        self._flags = flags
        self._gate = gate
        self._held: set[int] = set()
        self._fresh = True

    def publish(self, plan: Plan) -> None:
        """Enqueues the write of `published` behind the copies of the inputs."""
        self._flags.publish(plan.number)

    def ask(self, plan: Plan) -> None:
        """Sends the message on which the drafter's host enqueues the draft; a drafter that ended this way is lost."""
        bits = NODES * plan.nodes | BEHIND_PROMPTS * plan.behind_prompts | DRAWN * plan.drawn
        ask = Ask(self.generation, plan.number, plan.bucket, plan.width, len(plan.rows), bits)
        if self._turns is None:
            self.attachment.stream.send(ask)
        elif not self._turns.send(ask):
            self.attachment.lose()

    def wait(self, plan: Plan) -> bool:
        """Returns at once, because the device waits; answers to the messages tell nothing and are dropped."""
        if self._turns is None:
            self.attachment.stream.drop_replies()
        return self.speculating

    def hold(self, plan: Plan, copied: bool = False) -> None:
        """Enqueues a wait for `drafted`, unless the step of this size begins with that wait itself, and alone needs it.

        The driver's wait takes the host a tenth of what the launch of a kernel takes.
        """
        if copied or self._gate is None or not self._gate.serves(plan.bucket):
            self._flags.await_drafted(plan.number)
        self._held.add(plan.number)

    def watch(self, plan: Plan, done: Mark | None) -> None:
        """Waits until the verify is done.

        The drafter is late when that takes `watchdog_s` from here; the wait for its drafts ends then, or when it is
        lost. That round has no drafts.
        """
        assert done is not None, "a GPU's rounds end with a mark"
        if plan.number not in self._held:
            done.synchronize()
            return
        self._held.discard(plan.number)
        watchdog_s = self.attachment.watchdog_s
        patience_s, self._fresh = max(watchdog_s, _FIRST_ROUND_S) if self._fresh else watchdog_s, False
        deadline = time.monotonic() + patience_s
        while not done.query():
            if not self.speculating or time.monotonic() > deadline:
                self._flags.release_target(plan.number)
                self.attachment.give_up()
                done.synchronize()
            time.sleep(_POLL_S)
