"""The modes of a hand-off: how a target asks its drafter for a round and gets the drafts."""

from enum import StrEnum

from services.common.pair.mps import Sharing


class HandoffMode(StrEnum):
    """How rounds are asked for and how their drafts come.

    HOST, for any device: a message on Pace asks for a round; the drafter fills the mailbox and answers.

    SOCKET, on a CPU: the same over the side socket, with less delay.

    FLAGS, on a GPU: CUDA streams of both sides wait for each other by flags. The drafter fills the mailbox, and no host
    waits for a draft.

    WIRE, for any device, and without shared memory: a message on Pace asks for a round. Its answer brings the drafts,
    which the target writes into a mailbox of its own.
    """

    HOST = "host"
    SOCKET = "socket"
    FLAGS = "flags"
    WIRE = "wire"

    def in_use(self, sharing: Sharing) -> str:
        """The name of this mode in metrics and Describe: flags also say how the processes share the GPU."""
        return f"{self}_{sharing}" if self is HandoffMode.FLAGS else str(self)
