"""Makes a captured step begin when another process's stream has written a flag.

A captured step is the CUDA graph of one verify or draft; it is replayed without a call per kernel.
"""

from typing import Literal

from torch import Tensor

from services.common.kernels.wait_flag import wait_flag

Word = Literal["published", "drafted"]
MOST_SEQUENCES = 8
"""Most sequences of a round whose steps poll the flag themselves.

A polling kernel takes a place on a multiprocessor that the other process's products need. From 32 sequences on a round
loses more by that than it saves (docs/log/2026-11.md).
"""


class FlagWait:
    """Polls a flag from within a graph, so that the graph is under way when the flag comes.

    It is used only under MPS: where processes get slices of time, a polling kernel would use up its process's slice. It
    is used only in rounds of few sequences (`serves`); before other steps the stream waits.
    """

    def __init__(self, flags: Tensor, word: Word, limit_s: float) -> None:
        """Waits for a `word` of a FlagPair in `flags`, for `limit_s` at most, because its writer may be gone."""
        self._flags = flags
        self._limit_s = limit_s
        self._word = 0 if word == "published" else 1

    def serves(self, bucket: int) -> bool:
        """Whether steps of rounds of this `Plan.bucket` poll the flag themselves."""
        return bucket <= MOST_SEQUENCES

    def hold(self, stamp_2: Tensor) -> None:
        """Enqueues the polling kernel: what follows waits for the (round, generation) that `stamp_2` holds by then."""
        wait_flag(self._flags, stamp_2, self._word, self._limit_s)
