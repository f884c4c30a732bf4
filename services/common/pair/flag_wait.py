"""The head of a captured step that begins when another process's stream says so."""

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

    Only where processes share the GPU: where they take turns, a kernel that polls would use up its process's turn.
    And only in rounds of few sequences, see `serves`; before the steps of others their stream waits.
    """

    def __init__(self, flags: Tensor, word: Word, limit_s: float) -> None:
        """Waits for a `word` of a FlagPair's `flags`, for `limit_s` at most: its author may be gone."""
        self._flags = flags
        self._limit_s = limit_s
        self._word = 0 if word == "published" else 1

    def serves(self, bucket: int) -> bool:
        """Whether steps of rounds of this size wait themselves."""
        return bucket <= MOST_SEQUENCES

    def hold(self, stamp_2: Tensor) -> None:
        """What the present stream runs next waits for the round and generation that the stamp then holds."""
        wait_flag(self._flags, stamp_2, self._word, self._limit_s)
