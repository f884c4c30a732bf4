"""Builds the hand-off of a mode."""

import torch

from services.common.pair.arena import Arena
from services.common.pair.handoff import HandoffMode
from services.target.drafting.handoff.flags import FlagHandoff
from services.target.drafting.handoff.messages import MessageHandoff
from services.target.drafting.handoff.protocol import Handoff
from services.target.drafting.handoff.wire import WireHandoff


def build_handoff(
    mode: HandoffMode, arena: Arena, device: torch.device, watchdog_s: float, shares_memory: bool = True
) -> Handoff:
    """The hand-off of a mode; by wire, `shares_memory` says whether drafters map the arena."""
    match mode:
        case HandoffMode.HOST | HandoffMode.SOCKET:
            return MessageHandoff(mode, arena, device)
        case HandoffMode.FLAGS:
            return FlagHandoff(arena, watchdog_s)
        case HandoffMode.WIRE:
            return WireHandoff(arena, device, shares_memory)
