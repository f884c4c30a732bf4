"""What target and drafter hand one another in shared memory: drafts with their tags, and what was committed.

Suffixes: S slots + 1, B rows of a round, K drafts of a row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.dispatch import Operator, told_by

ABSENT = -1


@Operator
def read_mailbox(
    tokens_SK: Tensor, tags_S3: Tensor, rows_B: Tensor, epochs_S: Tensor, expected_2: Tensor, vocab: int, out_BK: Tensor
) -> Tensor:
    """Copy the drafts of every row's slot into `out_BK`, and check the copy alone (invariant I6).

    A row is kept when its tag equals (round, the slot's epoch, generation) and all its ids are in range; otherwise it
    becomes -1. `expected_2` holds (round, generation); `out_BK` may be narrower than the mailbox.
    """
    # At a few rows NumPy over the tensors' memory is an order of magnitude quicker than torch.
    rows, out = rows_B.numpy(), out_BK.numpy()
    tags = tags_S3.numpy()[rows]
    out[:] = tokens_SK.numpy()[rows, : out.shape[1]]
    round_number, generation = expected_2.tolist()
    usable = (tags[:, 0] == round_number) & (tags[:, 1] == epochs_S.numpy()[rows]) & (tags[:, 2] == generation)
    usable &= ((out >= 0) & (out < vocab)).all(1)
    out[~usable] = ABSENT
    return out_BK


@told_by(4)
def write_mailbox(
    drafts_BK: Tensor, rows_B: Tensor, epochs_S: Tensor, stamp_2: Tensor, tokens_SK: Tensor, tags_S3: Tensor,
    parents_BK: Tensor | None = None, parents_SK: Tensor | None = None,
) -> None:  # fmt: skip
    """Write the drafts of every row's slot, and their parents where they are trees; then (round, epoch, generation).

    `stamp_2` holds (round, generation), the epoch is the slot's; `drafts_BK` may be narrower than the mailbox.
    """
    number_B, generation_B = stamp_2[:, None].expand(2, len(rows_B))
    slots_B = rows_B.long()
    epoch_B = epochs_S.index_select(0, slots_B)
    tokens_SK[:, : drafts_BK.shape[1]].index_copy_(0, slots_B, drafts_BK.to(tokens_SK.dtype))
    if parents_BK is not None and parents_SK is not None:
        parents_SK[:, : parents_BK.shape[1]].index_copy_(0, slots_B, parents_BK.to(parents_SK.dtype))
    tags_S3.index_copy_(0, slots_B, torch.stack((number_B, epoch_B, generation_B), dim=1))


@dataclass(frozen=True, slots=True)
class Mapped:
    """Tensors that a drafter maps; `rows_B` may be longer than a round."""

    rows_B: Tensor
    length_S: Tensor
    anchor_S: Tensor
    history_length_S: Tensor


@Operator
def publish_slots(rows_B: Tensor, length_S: Tensor, anchor_S: Tensor, mapped: Mapped) -> None:
    """Copy a round's rows, and lengths and anchors of all slots; the history's length includes the anchor."""
    mapped.rows_B[: rows_B.shape[0]].copy_(rows_B)
    mapped.length_S.copy_(length_S)
    mapped.anchor_S.copy_(anchor_S)
    torch.add(length_S, 1, out=mapped.history_length_S)
