"""The modes of a hand-off: how a target asks its drafter for a round and gets the drafts."""

from enum import StrEnum

from services.common.pair.mps import Sharing


class HandoffMode(StrEnum):
    """How rounds are asked for and how their drafts come."""

    HOST = "host"
    """A message on Pace asks for a round; the drafter fills the mailbox and answers."""
    SOCKET = "socket"
    """A message on the side socket asks for a round; the drafter fills the mailbox and answers."""
    FLAGS = "flags"
    """CUDA streams of both sides order a round by flags; the drafter fills the mailbox."""
    WIRE = "wire"
    """A message on Pace asks for a round, and its answer brings the drafts."""

    def in_use(self, sharing: Sharing) -> str:
        """The mode as metrics and Describe name it: flags also say how the processes share the GPU."""
        return f"{self}_{sharing}" if self is HandoffMode.FLAGS else str(self)
