"""The head of a captured step that begins when another process's stream says so."""

from typing import Literal

from torch import Tensor

from services.common.kernels.await_flag import await_flag

Word = Literal["published", "drafted"]
MOST_ROWS = 16
"""Of a round whose steps wait themselves. One that polls takes room from the other's products: what a round saves by it
it loses from some ten sequences on, and at 512 rows ten times that (docs/performance.md)."""


class Gate:
    """Polls a flag from within a graph, so that the graph is under way when the flag comes.

    Only where processes share the GPU: where they take turns, a kernel that polls would use up its process's turn.
    And only in rounds of few rows, see `serves`; before the steps of others their stream waits.
    """

    def __init__(self, flags: Tensor, word: Word, limit_s: float) -> None:
        """Waits for a `word` of a FlagPair's `flags`, for `limit_s` at most: its author may be gone."""
        self._flags = flags
        self._limit_s = limit_s
        self._word = 0 if word == "published" else 1

    def serves(self, bucket: int, width: int) -> bool:
        """Whether steps of a round of this shape wait themselves: the verify's rows count for its draft, too."""
        return bucket * width <= MOST_ROWS

    def hold(self, stamp_2: Tensor) -> None:
        """What the present stream runs next waits for the round and generation that the stamp then holds."""
        await_flag(self._flags, stamp_2, self._word, self._limit_s)
