"""The modes of a hand-off: how a target asks its drafter for a round and gets the drafts."""

from enum import StrEnum

from services.common.pair.mps import Sharing


class HandoffMode(StrEnum):
    """How rounds are asked for and how their drafts come."""

    HOST = "host"
    """Asked for by Pace; the drafts come by the mailbox."""
    SOCKET = "socket"
    """Asked for by the side socket; the drafts come by the mailbox."""
    FLAGS = "flags"
    """Ordered by flags of the devices' streams; the drafts come by the mailbox."""
    WIRE = "wire"
    """Asked for by Pace, whose answers bring the drafts."""

    def in_use(self, sharing: Sharing) -> str:
        """The mode as metrics and Describe name it: flags also say how the processes share the GPU."""
        return f"{self}_{sharing}" if self is HandoffMode.FLAGS else str(self)
