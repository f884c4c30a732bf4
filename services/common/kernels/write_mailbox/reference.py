"""Mailbox writes in torch."""

import torch
from torch import Tensor


def write_mailbox(
    drafts_BK: Tensor, rows_B: Tensor, epochs_S: Tensor, stamp_2: Tensor, tokens_SK: Tensor, tags_S3: Tensor,
    parents_BK: Tensor | None = None, parents_SK: Tensor | None = None,
) -> None:  # fmt: skip
    """Write the drafts of every row's slot, then its tag."""
    number_B, generation_B = stamp_2[:, None].expand(2, len(rows_B))
    slots_B = rows_B.long()
    epoch_B = epochs_S.index_select(0, slots_B)
    tokens_SK[:, : drafts_BK.shape[1]].index_copy_(0, slots_B, drafts_BK.to(tokens_SK.dtype))
    if parents_BK is not None and parents_SK is not None:
        parents_SK[:, : parents_BK.shape[1]].index_copy_(0, slots_B, parents_BK.to(parents_SK.dtype))
    tags_S3.index_copy_(0, slots_B, torch.stack((number_B, epoch_B, generation_B), dim=1))
