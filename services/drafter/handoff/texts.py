"""Hand-off by wire where no memory is shared: requests bring the new tokens of the texts.

Texts are kept for one attachment; the next one is sent all of them again (I5). Suffixes: S slots + 1 (the last is the
pad slot), C context tokens, B rows of the bucket.
"""

from collections.abc import Sequence

import torch

from services.common.device.staging import write
from services.common.pair.wire import Text
from services.common.request.errors import invalid_field
from services.drafter.arena_view import ArenaView
from services.drafter.handoff.wire import WireHandoff

_MOST_ID = 2**31 - 1
_MOST_EPOCH = 2**63 - 1


class TextHandoff(WireHandoff):
    """For a drafter with an arena of its own: requests bring what a target would publish in shared memory."""

    def __init__(self, shared: ArenaView) -> None:
        super().__init__(shared)
        slots_S = len(shared.tag_S3)
        self._epochs, self._ends = [0] * slots_S, [0] * slots_S

    @torch.inference_mode()
    def learn(self, texts: Sequence[Text], slots: Sequence[int]) -> None:
        """Appends tokens to the texts of their slots; `slots` become the rows of the next round, the rest is padding.

        Raises:
            PacelineError: INVALID_FIELD: a text has a gap, does not fit, or names no slot, and those before it are
                kept; or there are more slots than rows, or one does not exist.
        """
        for text in texts:
            self._append(text)
        write(self._shared.history_length_S, self._ends)
        write(self._shared.epoch_S, self._epochs)
        self._seat(slots)

    def _seat(self, slots: Sequence[int]) -> None:
        rows_B = self._shared.rows_B
        if len(slots) > len(rows_B) or max(slots, default=0) >= self._pad_slot:
            raise invalid_field("slots", f"must be at most {len(rows_B)}, each below {self._pad_slot}")
        write(rows_B, [*slots, *[self._pad_slot] * (len(rows_B) - len(slots))])

    def _append(self, text: Text) -> None:
        slot, end = text.slot, text.start + len(text.token_ids)
        context = self._shared.history_SC.shape[1]
        if slot >= self._pad_slot or text.epoch > _MOST_EPOCH:
            raise invalid_field("texts", f"slot {slot} of epoch {text.epoch} does not exist")
        if text.start > (self._ends[slot] if self._epochs[slot] == text.epoch else 0):
            raise invalid_field("texts", f"slot {slot}: tokens before position {text.start} are missing")
        if not text.token_ids or end > context or max(text.token_ids) > _MOST_ID:
            raise invalid_field("texts", f"slot {slot}: token ids up to {_MOST_ID} are expected, to position {context}")
        write(self._shared.history_SC[slot, text.start : end], text.token_ids)
        self._epochs[slot], self._ends[slot] = text.epoch, end
