"""HandoffMode.SOCKET: two short messages a round, between the target's engine and a thread of the drafter."""

from __future__ import annotations

import socket
from collections.abc import Callable

import torch

from services.common.pair.arena import Arena
from services.common.pair.flag_wait import FlagWait
from services.common.pair.handoff import HandoffMode
from services.common.pair.turns import asking_end
from services.target.core.drafts import Drafts
from services.target.drafting.handoff.generations import Generations
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.protocol import Attached, MessageDrafts

_CPU = torch.device("cpu")


class SocketHandoff:
    """For an arena in host memory. A drafter that keeps no connection is asked by Pace; `in_use` is then `host`."""

    wanted = HandoffMode.SOCKET
    look_ahead = 0
    gate: FlagWait | None = None

    def __init__(self, arena: Arena) -> None:
        """The drafter fills the arena's mailbox."""
        self.in_use = str(self.wanted)
        self.mailbox = Mailbox.shared(arena)
        self.generations = Generations()

    def open(self, attachment: Attached, take_connection: Callable[[], socket.socket | None]) -> Drafts:
        """Asks over the connection that the arena was fetched by, and ends it with the attachment.

        The Pace stream then only tells when that is over.
        """
        connection = take_connection()
        self.in_use = str(HandoffMode.HOST if connection is None else HandoffMode.SOCKET)
        if connection is None:
            return MessageDrafts(attachment, attachment.stream, _CPU)
        turns = asking_end(connection)
        attachment.at_end(turns.close)
        return MessageDrafts(attachment, turns, _CPU)
