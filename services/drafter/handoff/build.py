"""Builds the hand-off that an offer asks for."""

from services.common.pair import attach
from services.common.pair.attach import AttachOffer
from services.common.pair.handoff import HandoffMode
from services.drafter.arena_view import ArenaView
from services.drafter.handoff.flags import FlagHandoff
from services.drafter.handoff.host import HostHandoff
from services.drafter.handoff.protocol import Handoff
from services.drafter.handoff.socket import SocketHandoff
from services.drafter.handoff.texts import TextHandoff
from services.drafter.handoff.wire import WireHandoff
from services.drafter.mapping import Mapped


def build_handoff(offer: AttachOffer, mapped: Mapped, shared: ArenaView) -> Handoff:
    """The hand-off of an attachment whose offer and arena were checked."""
    match offer.handoff:
        case HandoffMode.HOST:
            return HostHandoff(shared.tokens_SK.device)
        case HandoffMode.SOCKET:
            assert mapped.connection is not None, "offers of turns over no connection are refused"
            return SocketHandoff(mapped.connection)
        case HandoffMode.FLAGS:
            return FlagHandoff(mapped.arena.tensor(attach.FLAGS), offer.generation, mapped.connection)
        case HandoffMode.WIRE:
            return WireHandoff(shared) if offer.layout is not None else TextHandoff(shared)
