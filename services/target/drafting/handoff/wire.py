"""Hand-off by wire: answers on Pace bring the drafts, and the target writes them into a mailbox of its own.

Where no memory is shared, each request also brings the tokens that are new, which the drafter would read there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import torch

from services.common.pair.arena import Arena
from services.common.pair.flag_wait import FlagWait
from services.common.pair.handoff import HandoffMode
from services.common.pair.turns import Answer, Ask
from services.common.pair.wire_convert import answer_from_pb
from services.target.core.plan import Plan
from services.target.drafting.handoff.answers import AnswerPost
from services.target.drafting.handoff.generations import Generations
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.messages import MessageDrafts
from services.target.drafting.handoff.pace import PaceStream
from services.target.drafting.handoff.protocol import Attached
from services.target.drafting.handoff.texts import AskAlone, Asking, Texts


class WireHandoff:
    """For any device, and for drafters that can map no memory; no drafter can write the mailbox."""

    wanted = HandoffMode.WIRE
    look_ahead = 0
    gate: FlagWait | None = None

    def __init__(self, arena: Arena, device: torch.device, shares_memory: bool) -> None:
        """Without `shares_memory` no drafter maps the arena; what is published there is sent in messages."""
        self.in_use = str(self.wanted)
        self.mailbox = Mailbox.private(Mailbox.shared(arena))
        self.generations = Generations()
        self._arena, self._device, self._shares_memory = arena, device, shares_memory
        self._post = AnswerPost(self.mailbox)

    def open(self, attachment: Attached, take_connection: Callable[[], socket.socket | None]) -> WireDrafts:
        """Asks over the attachment's stream; a new attachment is told every text from its start."""
        asking = AskAlone() if self._shares_memory else Texts(self._arena)
        return WireDrafts(attachment, self._device, self._post, asking)


class WireDrafts(MessageDrafts):
    """Drafts of one attachment; the hosts order the rounds."""

    def __init__(self, attachment: Attached, device: torch.device, post: AnswerPost, asking: Asking) -> None:
        """`post` fills the mailbox of the hand-off."""
        super().__init__(attachment, WirePace(attachment.stream, post, asking), device)
        self._post = post

    def hold(self, plan: Plan, copied: bool = False) -> None:
        """Enqueues the copy of the drafts to a GPU; on a CPU the answer has filled the mailbox itself."""
        self._post.deliver()


class WirePace:
    """One attachment's rounds; one thread sends and receives."""

    def __init__(self, stream: PaceStream, post: AnswerPost, asking: Asking) -> None:
        """`asking` decides what a request says beside the round."""
        self._stream, self._post, self._asking = stream, post, asking
        self._count = 0

    def send(self, ask: Ask) -> None:
        """Sends a round."""
        self._count = ask.width - 1
        for message in self._asking.requests(ask):
            self._stream.put(message)

    def receive(self, timeout_s: float) -> Answer | None:
        """The next answer, None when the stream has ended.

        Its drafts go to `AnswerPost.fill`, which checks sizes; verify checks ids and tags.

        Raises:
            TimeoutError: Nothing came in time.
        """
        reply = self._stream.take(timeout_s)
        if reply is None:
            return None
        self._post.fill(reply, self._count)
        return answer_from_pb(reply)
