"""Hand-off by wire, the drafter's side: answers bring the drafts, and texts come in requests where no memory is shared.

Texts are kept for one attachment; the next one is sent all of them again (I5).
Suffixes: S slots + 1 (the last is the pad slot), C context tokens, B rows of the bucket, K draft tokens.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.common.device.staging import write
from services.common.pair import attach
from services.common.pair.arena import Arena, MemfdArena
from services.common.pair.attach import AttachOffer, ControlShape
from services.common.pair.wire import Draft, Text
from services.common.request.errors import invalid_field
from services.drafter.shared import Shared

_MOST_ID = 2**31 - 1
_MOST_EPOCH = 2**63 - 1


class WireTurn:
    """The message that asks says that the inputs are there; the answer holds what the mailbox was filled with."""

    def __init__(self, shared: Shared, keeps_texts: bool) -> None:
        """With `keeps_texts` the memory is this drafter's own, and all that it knows of the texts comes by `learn`."""
        self._shared = shared
        self._device = shared.tokens_SK.device
        self.keeps_texts = keeps_texts
        slots_S = len(shared.tag_S3)
        self._pad_slot = slots_S - 1
        self._epochs, self._ends = [0] * slots_S, [0] * slots_S

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """The inputs are there."""

    def begin(self, number: int, bucket: int) -> None:
        """The inputs are there."""

    def end(self, number: int) -> None:
        """Reading the drafts waits for the device."""

    def close(self) -> None:
        """Nothing waits."""

    @torch.inference_mode()
    def learn(self, texts: Sequence[Text]) -> None:
        """Appends tokens to the texts of their slots.

        Raises:
            PacelineError: INVALID_FIELD: a text has a gap, does not fit, or names no slot; those before it are kept.
        """
        for text in texts:
            self._append(text)
        write(self._shared.history_length_S, self._ends)
        write(self._shared.epoch_S, self._epochs)

    @torch.inference_mode()
    def seat(self, slots: Sequence[int]) -> None:
        """Makes these slots the rows of the next round; the rest is padding.

        Raises:
            PacelineError: INVALID_FIELD: there are more than rows, or one does not exist.
        """
        rows_B = self._shared.rows_B
        if len(slots) > len(rows_B) or max(slots, default=0) >= self._pad_slot:
            raise invalid_field("slots", f"must be at most {len(rows_B)}, each below {self._pad_slot}")
        write(rows_B, [*slots, *[self._pad_slot] * (len(rows_B) - len(slots))])

    def drafts(self, rows: int, width: int) -> list[Draft]:
        """What the mailbox holds for the first `rows` rows; one without a draft is left out."""
        slots_B = self._shared.rows_B[:rows]
        tokens_BK = self._shared.tokens_SK.index_select(0, slots_B)[:, : width - 1]
        epochs_B = self._shared.tag_S3.index_select(0, slots_B)[:, 1]
        found = zip(slots_B.tolist(), epochs_B.tolist(), tokens_BK.tolist(), strict=True)
        return [Draft(*row) for row in found if row[0] < self._pad_slot and min(row[2]) >= 0]

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


def own_arena(offer: AttachOffer, device: torch.device) -> Arena:
    """Memory of the drafter's own in the place of a target's, for texts and drafts."""
    shape = ControlShape(
        slots=offer.slots,
        max_blocks=1,
        context=offer.context_limit,
        max_bucket=max(offer.buckets),
        max_draft=max(offer.widths) - 1,
    )
    arena = _allocate(attach.control_tensors(shape), device)
    arena.tensor(attach.NONCE)[0] = offer.nonce
    return arena


def _allocate(spec: dict[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device) -> Arena:
    if device.type == "cpu":
        return MemfdArena.create(spec)
    from services.common.pair.arena.cuda import CudaArena

    return CudaArena.create(spec)
