"""Hand-off by wire: the request says that the inputs are written, and the answer carries the drafts.

Suffixes: S slots + 1 (the last is the pad slot), B rows of the bucket, K draft tokens.
"""

from collections.abc import Sequence

from torch import Tensor

from services.common.pair.wire import Draft
from services.drafter.arena_view import ArenaView
from services.drafter.handoff.protocol import SharedMemory


class WireHandoff(SharedMemory):
    """For a drafter that reads the target's memory; see texts.py for one that cannot."""

    def __init__(self, shared: ArenaView) -> None:
        self._shared = shared
        self._pad_slot = len(shared.tag_S3) - 1

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """Does nothing: the inputs are written."""

    def begin(self, number: int, bucket: int, behind_prompts: bool) -> None:
        """Does nothing: the inputs are written."""

    def end(self, number: int) -> None:
        """Does nothing: reading the drafts waits for the device."""

    def drafts(self, rows: int, width: int) -> list[Draft]:
        """What the mailbox holds for the first `rows` rows; one without a draft is left out."""
        slots_B = self._shared.rows_B[:rows]
        tokens_BK = self._shared.tokens_SK.index_select(0, slots_B)[:, : width - 1]
        epochs_B = self._shared.tag_S3.index_select(0, slots_B)[:, 1]
        parents: list[Sequence[int]] = [()] * len(slots_B)
        if self._shared.parents_SK is not None:
            parents = self._shared.parents_SK.index_select(0, slots_B)[:, : width - 1].tolist()
        found = zip(slots_B.tolist(), epochs_B.tolist(), tokens_BK.tolist(), parents, strict=True)
        return [Draft(*row) for row in found if row[0] < self._pad_slot and min(row[2]) >= 0]
