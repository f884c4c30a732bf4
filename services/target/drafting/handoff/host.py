"""HandoffMode.HOST: the target's host asks for a round on Pace and waits for the answer."""

from __future__ import annotations

import socket
from collections.abc import Callable

import torch

from services.common.pair.arena import Arena
from services.common.pair.flag_wait import FlagWait
from services.common.pair.handoff import HandoffMode
from services.target.drafting.handoff.generations import Generations
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.protocol import Attached, MessageDrafts


class HostHandoff:
    """For any device: the portable fallback."""

    wanted = HandoffMode.HOST
    look_ahead = 0
    gate: FlagWait | None = None

    def __init__(self, arena: Arena, device: torch.device) -> None:
        """The drafter fills the arena's mailbox."""
        self.in_use = str(self.wanted)
        self.mailbox = Mailbox.shared(arena)
        self.generations = Generations()
        self._device = device

    def open(self, attachment: Attached, take_connection: Callable[[], socket.socket | None]) -> MessageDrafts:
        """Asks over the attachment's stream."""
        return MessageDrafts(attachment, attachment.stream, self._device)
